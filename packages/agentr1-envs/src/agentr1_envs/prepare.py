"""Official files in, parquet out: one file a split, and the corpus of their paragraphs.

Files appear whole or not at all: each is written beside its place and renamed at the end.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from agentr1_envs.corpus import check_corpus_path, read_passages
from agentr1_envs.errors import DataNotFoundError, SettingError, require_choice
from agentr1_envs.loader import CORPUS_NAME, Dataset, OnBadRow, in_folder, read_tasks
from agentr1_envs.prepared_rows import AGENT_NAME
from agentr1_envs.scorers import hotpot_normalise
from agentr1_envs.tasks import Passage, Task, count_empty_gold

_BATCH = 2000


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was written for one split."""

    split: str
    path: Path
    tasks: int
    skipped: tuple[str, ...]
    """One line for each row that was left out."""
    empty_gold: int
    """Tasks whose gold answer normalises to nothing; they stay in."""


def find_sources(dataset: Dataset, source: Path, split: str | None) -> dict[str, list[Path]]:
    """The files of each split in a folder, or the one file given.

    Args:
        dataset: whose files.
        source: a file or a folder.
        split: only this split; for a file None means the split its name contains.

    Raises:
        DataNotFoundError: nothing is there. SettingError: an unknown split, or a file whose split cannot be told.
    """
    legal = (*dataset.splits, *dataset.further_splits)
    if split is not None:
        require_choice("--split", split, legal)
    if source.is_file():
        named = [known for known in legal if known in source.stem.lower()]
        if split is None and len(named) != 1:
            raise SettingError(f"{source}: its name does not tell the split; pass --split {'|'.join(legal)}.")
        return {split or named[0]: [source]}
    if not source.is_dir():
        raise DataNotFoundError(f"--source {source}: there is no such file or folder ({source.absolute()}).")
    wanted = dataset.splits if split is None else (split,)
    found = {name: path for name in wanted if (path := in_folder(dataset, name, source)) is not None}
    if not found and split is None:  # a test split without answers often lies beside the others, and is left alone
        wanted = legal
        found = {name: path for name in wanted if (path := in_folder(dataset, name, source)) is not None}
    if not found:
        official = ", ".join(name for _, name in dataset.official)
        raise DataNotFoundError(
            f"--source {source}: holds no file of {dataset.name}; looked for {', '.join(wanted)} as .parquet, .jsonl "
            f"or .json{', and ' + official if official else ''}."
        )
    return {name: [path] for name, path in found.items()}


def prepare(
    dataset: Dataset,
    sources: Mapping[str, Sequence[Path]],
    out: Path,
    *,
    corpus: Path | None = None,
    on_bad_row: OnBadRow = "refuse",
) -> tuple[list[Prepared], int]:
    """Write ``<out>/<split>.parquet`` for each split, and ``<out>/corpus.jsonl``; everything is read before that.

    Args:
        dataset: what the files are.
        sources: the files of each split.
        out: a folder; or, for one split, a ``.parquet`` file.
        corpus: a corpus to bring along; None gathers the paragraphs that come with the questions.
        on_bad_row: "refuse" or "skip".

    Returns:
        What was written, and how many passages the corpus has (0: none was written).

    Raises:
        DataRowError: a bad row. SettingError: `out` is one file for several splits.
    """
    single = out.suffix == ".parquet"
    if single and len(sources) != 1:
        raise SettingError(f"--out {out} is one file, but there are {len(sources)} splits; give a folder or --split.")
    folder = out.parent if single else out
    read: dict[str, tuple[list[Task], list[str]]] = {}
    for split, paths in sources.items():
        parts = [read_tasks(dataset, split, path, on_bad_row) for path in paths]
        read[split] = ([task for tasks, _ in parts for task in tasks], [line for _, lines in parts for line in lines])
    passages = (
        read_passages(check_corpus_path(corpus))
        if corpus
        else _gathered(task for tasks, _ in read.values() for task in tasks)
    )
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Prepared] = []
    for split, (tasks, skipped) in read.items():
        path = out if single else folder / f"{split}.parquet"
        _write_parquet(dataset, tasks, path)
        empty = count_empty_gold(tasks, hotpot_normalise)
        written.append(Prepared(split, path, len(tasks), tuple(skipped), empty))
    if passages:
        _write_corpus(passages, folder / CORPUS_NAME)
    return written, len(passages)


def _gathered(tasks: Iterable[Task]) -> tuple[Passage, ...]:
    """Each paragraph once, by title; a title keeps all its texts, since MuSiQue's paragraphs are parts of articles."""
    seen: dict[tuple[str, str], Passage] = {}
    for task in tasks:
        for passage in task.context:
            seen.setdefault((passage.title, passage.text), passage)
    return tuple(sorted(seen.values(), key=lambda passage: passage.title))


def _columns(dataset: Dataset, index: int, task: Task) -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "split": task.split,
        "data_source": dataset.data_source,
        "prompt": [{"role": "user", "content": task.question}],
        "ability": dataset.ability,
        "reward_model": {"style": "rule", "ground_truth": task.answers[0]},
        "extra_info": {
            "index": index,
            "split": task.split,
            "question": task.question,
            "answer": task.solution,
            "aliases": list(task.answers[1:]),
            "plan": list(task.plan),
            "type": task.kind,
            "level": task.level,
            "supporting_facts": [{"title": title, "sent_id": place} for title, place in task.supporting],
            "context": [{"title": p.title, "sentences": list(p.sentences)} for p in task.context],
            "context_titles": list(task.context_titles),
            "evidences": [list(triple) for triple in task.evidences],
        },
        "agent_name": AGENT_NAME,
        "env_kwargs": {"env_id": dataset.env_id, "split": task.split, "task_id": task.task_id},
    }


def _write_parquet(dataset: Dataset, tasks: Sequence[Task], path: Path) -> None:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    schema = _schema(arrow)
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        with parquet.ParquetWriter(unfinished, schema) as writer:
            for start in range(0, len(tasks), _BATCH):
                batch = enumerate(tasks[start : start + _BATCH], start=start)
                rows = [_columns(dataset, index, task) for index, task in batch]
                writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _schema(arrow: Any) -> Any:
    text, number = arrow.string(), arrow.int64()
    texts = arrow.list_(text)
    message = arrow.struct([("role", text), ("content", text)])
    fact = arrow.struct([("title", text), ("sent_id", number)])
    passage = arrow.struct([("title", text), ("sentences", texts)])
    details = arrow.struct(
        [
            ("index", number),
            ("split", text),
            ("question", text),
            ("answer", text),
            ("aliases", texts),
            ("plan", texts),
            ("type", text),
            ("level", text),
            ("supporting_facts", arrow.list_(fact)),
            ("context", arrow.list_(passage)),
            ("context_titles", texts),
            ("evidences", arrow.list_(texts)),
        ]
    )
    return arrow.schema(
        [
            ("task_id", text),
            ("split", text),
            ("data_source", text),
            ("prompt", arrow.list_(message)),
            ("ability", text),
            ("reward_model", arrow.struct([("style", text), ("ground_truth", text)])),
            ("extra_info", details),
            ("agent_name", text),
            ("env_kwargs", arrow.struct([("env_id", text), ("split", text), ("task_id", text)])),
        ]
    )


def _write_corpus(passages: Sequence[Passage], path: Path) -> None:
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        with unfinished.open("w", encoding="utf-8") as out:
            for number, passage in enumerate(passages):
                entry = {"id": number, "title": passage.title, "sentences": list(passage.sentences)}
                out.write(json.dumps(entry, ensure_ascii=False) + "\n")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
