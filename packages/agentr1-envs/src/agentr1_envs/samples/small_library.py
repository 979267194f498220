"""A small invented library: papers that cite each other, and research questions about them.

Twelve subjects, ten methods and six difficulties make its papers. Half of a subject's papers call it by another name,
so a search for the one misses the other; surveys, and later papers on the same subject, cite both. The library is drawn
from a fixed seed; `small_library_corpus.jsonl` beside this file holds its papers, written by
`python -m agentr1_envs.samples.small_library`.

Which split a question belongs to is decided by a checksum of its text, so no text occurs in both.
"""

import json
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from agentr1_envs.errors import SettingError
from agentr1_envs.paper_data import PaperTask

SPLITS = ("train", "test")
CORPUS_PATH = Path(__file__).with_name("small_library_corpus.jsonl")
YEARS = range(2008, 2025)

_SUBJECTS = {
    "tide forecasting": "sea level prediction",
    "birdsong recognition": "avian call identification",
    "bridge inspection": "span damage survey",
    "seed sorting": "grain grading",
    "old handwriting": "manuscript transcription",
    "train timetables": "railway scheduling",
    "bee colony monitoring": "hive health observation",
    "glacier mapping": "ice sheet charting",
    "recipe translation": "cookbook localisation",
    "chess commentary": "board game narration",
    "lighthouse maintenance": "beacon upkeep",
    "textile design": "fabric pattern drafting",
}
_METHODS = (
    "graph networks", "decision trees", "kernel machines", "self-training", "curriculum learning", "beam search",
    "gaussian processes", "contrastive pretraining", "rule induction", "particle filters",
)  # fmt: skip
_DIFFICULTIES = {
    "few labels": "when only a few labels exist",
    "noisy sensors": "although the sensors are noisy",
    "missing records": "despite missing records",
    "slow hardware": "on slow hardware",
    "changing seasons": "as the seasons change",
    "several languages": "across several languages",
}
_OPENINGS = (
    "We study {name} with {method}, {difficulty}.",
    "This paper applies {method} to {name}; it is meant to work {difficulty}.",
    "Work on {name} is usually done by hand. We show that {method} can help, {difficulty}.",
    "What can {method} do for {name}, {difficulty}? We answer with three experiments.",
)
_FINDINGS = (
    "Errors fall by {number} percent against the best earlier system.",
    "The approach needs {number} times less data than its predecessor.",
    "A field trial over {number} weeks confirms the result.",
    "An analysis of {number} failures shows what is still missing.",
)
_SURVEY = "We review work on {name}, also known as {other}, up to {year}, and list open problems."


@dataclass(frozen=True, slots=True)
class _Work:
    """A paper before it has a text: what it is about."""

    id: str
    subject: str
    other_name: bool
    method: str
    difficulty: str
    year: int
    title: str
    abstract: str
    references: tuple[str, ...] = ()


def small_library(split: str) -> tuple[PaperTask, ...]:
    """The questions of a split.

    Raises:
        SettingError: no such split.
    """
    if split not in SPLITS:
        raise SettingError(f"split={split!r} is not known; legal: {', '.join(map(repr, SPLITS))}.")
    return _questions_by_split()[split]


@lru_cache(maxsize=1)
def papers() -> tuple[_Work, ...]:
    """All papers of the library, oldest first, with what they cite."""
    rng = random.Random("the small library")
    drawn = sorted(_works(rng), key=lambda work: (work.year, work.title))
    numbered = [replace(work, id=f"P{number:03d}") for number, work in enumerate(drawn)]
    return tuple(replace(work, references=_cited(rng, work, numbered[:place])) for place, work in enumerate(numbered))


def write_corpus(path: Path) -> int:
    """Write the papers as a corpus; returns how many."""
    with path.open("w", encoding="utf-8") as out:
        for work in papers():
            entry = {
                "id": work.id,
                "title": work.title,
                "abstract": work.abstract,
                "year": work.year,
                "references": list(work.references),
            }
            out.write(json.dumps(entry, ensure_ascii=False) + "\n")
    return len(papers())


def _works(rng: random.Random) -> Iterator[_Work]:
    for subject, other in _SUBJECTS.items():
        for method in _METHODS:
            for number in range(rng.randint(2, 4)):
                difficulty = rng.choice(list(_DIFFICULTIES))
                renamed = number % 2 == 1
                name = other if renamed else subject
                title = f"{method} for {name} with {difficulty}, part {number + 1}".capitalize()
                text = {"name": name, "method": method, "difficulty": _DIFFICULTIES[difficulty]}
                sentences = (
                    rng.choice(_OPENINGS).format(**text),
                    rng.choice(_FINDINGS).format(number=rng.randint(2, 40)),
                )
                abstract = " ".join(sentence[0].upper() + sentence[1:] for sentence in sentences)
                yield _Work("", subject, renamed, method, difficulty, rng.choice(YEARS), title, abstract)
        for year in (2014, 2019, 2024):
            title = f"A survey of {subject} up to {year}"
            yield _Work("", subject, False, "", "", year, title, _SURVEY.format(name=subject, other=other, year=year))


def _cited(rng: random.Random, work: _Work, earlier: list[_Work]) -> tuple[str, ...]:
    """A survey cites up to 30 papers on its subject; another cites some of its subject and some of its method."""
    related = [other for other in earlier if other.subject == work.subject and other.method]
    if not work.method:
        return tuple(other.id for other in related[-30:])
    same_method = [other for other in earlier if other.method == work.method and other.subject != work.subject]
    cited = rng.sample(related, min(len(related), 6)) + rng.sample(same_method, min(len(same_method), 3))
    return tuple(sorted(other.id for other in cited))


def _questions() -> Iterator[tuple[str, tuple[_Work, ...], tuple[str, ...], int | None]]:
    """Text, wanted papers, plan and last year of each question."""
    for subject, other in _SUBJECTS.items():
        about = [work for work in papers() if work.subject == subject and work.method]
        for method in _METHODS:
            wanted = tuple(work for work in about if work.method == method)
            plan = (f"{method} for {subject}", f"{method} for {other}")
            yield f"Which papers use {method} for {subject}?", wanted, plan, None
            until = [work for work in wanted if work.year <= 2018]
            if until and len(until) < len(wanted):
                yield f"Which papers up to 2018 use {method} for {subject}?", tuple(until), plan, 2018
        for difficulty in _DIFFICULTIES:
            wanted = tuple(work for work in about if work.difficulty == difficulty)
            plan = (f"{subject} with {difficulty}", f"{other} with {difficulty}")
            if wanted:
                yield f"Which papers on {subject} cope with {difficulty}?", wanted, plan, None


@lru_cache(maxsize=1)
def _questions_by_split() -> dict[str, tuple[PaperTask, ...]]:
    tasks: dict[str, list[PaperTask]] = {split: [] for split in SPLITS}
    for text, wanted, plan, last_year in _questions():
        split = "test" if zlib.crc32(text.encode()) % 5 == 0 else "train"
        gold = tuple(work.id for work in wanted)
        tasks[split].append(
            PaperTask(
                task_id=f"library-{split}-{len(tasks[split]):04d}",
                split=split,
                question=text,
                answers=gold,
                plan=plan,
                gold=gold,
                cutoff=str(last_year or ""),
            )
        )
    return {split: tuple(found) for split, found in tasks.items()}


if __name__ == "__main__":
    print(f"{write_corpus(CORPUS_PATH)} papers written to {CORPUS_PATH.name}")
