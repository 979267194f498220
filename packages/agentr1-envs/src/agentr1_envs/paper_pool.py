"""The papers an episode of PaperSearch has found, and the text that shows them. It searches and scores nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_envs.paper_rules import PaperRules
from agentr1_envs.tool_env import letters


@dataclass(frozen=True, slots=True)
class FoundPaper:
    """A paper as a tool returned it."""

    id: str
    title: str
    abstract: str
    date: str
    """Digits of its date as far as it is known; empty when it is not."""
    score: float
    """How well it fits: BM25, or a cosine; for a search its query, for a reference the question."""

    @property
    def key(self) -> str:
        """The letters of its title, by which papers are compared."""
        return letters(self.title)


def read_found(papers: Iterable[Mapping[str, Any]]) -> list[FoundPaper]:
    """The papers in a tool's data."""
    return [FoundPaper(p["id"], p["title"], p["abstract"], p["date"], float(p["score"])) for p in papers]


@dataclass(slots=True)
class _Entry:
    paper: FoundPaper
    score: float
    expanded: bool = False


class PaperPool:
    """Papers with their best relevance so far; two of one title are one paper."""

    def __init__(self) -> None:
        self._by_key: dict[str, _Entry] = {}
        self._by_id: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, paper_id: object) -> bool:
        return paper_id in self._by_id

    def add(self, papers: Sequence[FoundPaper], scores: Sequence[float], drop_below: float) -> list[FoundPaper]:
        """Take in papers that score enough, and return the new ones; a known paper keeps its better score."""
        new: list[FoundPaper] = []
        for paper, score in zip(papers, scores, strict=True):
            if score < drop_below:
                continue
            known = self._by_key.get(paper.key)
            if known is None:
                known = self._by_key[paper.key] = self._by_id[paper.id] = _Entry(paper, score)
                new.append(paper)
            known.score = max(known.score, score)
        return new

    def score_of(self, paper: FoundPaper) -> float:
        """The relevance of a paper of the pool."""
        return self._by_key[paper.key].score

    def is_expanded(self, paper_id: str) -> bool:
        """True when its references were asked for."""
        return self._by_id[paper_id].expanded

    def expand(self, paper_id: str) -> None:
        """Note that its references were asked for."""
        self._by_id[paper_id].expanded = True

    def ranked(self, at_least: float = 0.0, *, expanded: bool | None = None) -> list[FoundPaper]:
        """The papers that score `at_least` so much, best first, ties as found; only those (un)expanded by choice."""
        kept = [
            entry
            for entry in self._by_key.values()
            if entry.score >= at_least and (expanded is None or entry.expanded == expanded)
        ]
        return [entry.paper for entry in sorted(kept, key=lambda entry: -entry.score)]


def state_text(
    question: str, pool: PaperPool, rules: PaperRules, queries: Sequence[str] = (), notes: Sequence[str] = ()
) -> str:
    """What the model sees at each step: the question, its queries so far, what went wrong, and the best of the pool."""
    parts = [f"Question: {question}"]
    if queries:
        parts.append("Queries so far: " + "; ".join(queries))
    if notes:
        parts.append("\n".join(notes))
    for title, expanded, most in (
        ("Expanded papers", True, rules.shown_expanded),
        ("New papers", False, rules.shown_new),
    ):
        papers = pool.ranked(expanded=expanded)
        shown = papers[:most]
        heading = f"{title} ({len(shown)} of {len(papers)}):" if papers else f"{title}: none"
        parts += [heading, *(_shown(paper, rules.abstract_words) for paper in shown)]
    return "\n\n".join(parts)


def _shown(paper: FoundPaper, most_words: int) -> str:
    words = paper.abstract.split()
    abstract = " ".join(words[:most_words]) + (" ..." if len(words) > most_words else "")
    return f"[{paper.id}] {paper.title}\n{abstract}".strip()
