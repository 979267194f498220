"""HotpotQA rows in all their shapes, and those of its kin; each becomes a `Task`.

Read are: the official json (`_id`, `context` as pairs), the Hugging Face form (`context` as columns), the simplified
dev set of ReAct (question, answer, type), rows whose paragraphs stand in a corpus (`context_titles`), and prepared
rows. 2WikiMultihopQA is written as HotpotQA, with `evidences`; MuSiQue has `paragraphs`, of which some are marked as
supporting; Bamboogle only has answers. Any question with gold answers fits: aliases may stand under `answers`,
`golden_answers` or `answer_aliases`.
"""

import random
from functools import lru_cache
from typing import Any, cast

from agentr1_envs.errors import SettingError
from agentr1_envs.prepared_rows import gold_answers, is_prepared, question_of, row_id
from agentr1_envs.rows import Row
from agentr1_envs.tasks import Passage, Task, TaskSet

DEV_SIZE = 7405
REACT_SIZE = 500


def read_hotpotqa(row: Row, split: str) -> Task:
    """The task of one row.

    Raises:
        DataRowError: a field is missing or mistyped.
    """
    if row.fields.get("answerable") is False:
        raise row.error("answerable", "is false; only questions whose paragraphs hold the answer can be scored.")
    details = row.section("extra_info") if is_prepared(row) else row
    paragraphs = _paragraphs(row)
    answers = gold_answers(row) if is_prepared(row) else _answers(row)
    return Task(
        task_id=row_id(row, split),
        split=split,
        question=question_of(row) if is_prepared(row) else row.text("question"),
        answers=answers,
        plan=tuple(str(query) for query in details.items("plan")),
        supporting=_supporting(details) or _marked(paragraphs),
        context=_context(details) or tuple(passage for passage, _ in paragraphs),
        context_titles=tuple(str(title) for title in details.items("context_titles")),
        kind=details.text("type", ""),
        level=details.text("level", ""),
        evidences=_evidences(details),
    )


def react_indices() -> list[int]:
    """The 500 rows of the dev set that ReAct (Yao et al. 2023) evaluates on, in its order."""
    indices = list(range(DEV_SIZE))
    random.Random(233).shuffle(indices)
    return indices[:REACT_SIZE]


@lru_cache(maxsize=2)
def react_subset(tasks: TaskSet) -> TaskSet:
    """ReAct's 500 questions out of the whole dev set.

    Raises:
        SettingError: `tasks` is not the whole dev set, so the rule would pick other questions.
    """
    if len(tasks) != DEV_SIZE:
        raise SettingError(
            f"subset='react500' picks by position in the whole dev set of {DEV_SIZE} questions; {tasks.source} holds "
            f"{len(tasks)}. Pass data= the official dev file or hotpot_dev_v1_simplified.json with split='dev'."
        )
    chosen = tuple(tasks[index] for index in react_indices())
    return TaskSet(tasks.name, tasks.split, chosen, tasks.source, tasks.corpus, tasks.skipped_rows)


def _answers(row: Row) -> tuple[str, ...]:
    for field in ("answers", "golden_answers"):
        if row.items(field):
            return tuple(str(answer) for answer in row.items(field))
    return (row.text("answer"), *(str(alias) for alias in row.items("answer_aliases")))


def _pairs(row: Row, field: str, first: str, second: str) -> list[tuple[str, Any]]:
    """A list of [title, x] or {title, x}, or an object of two columns, as pairs."""
    value = row.fields.get(field)
    if isinstance(value, dict):
        columns = row.section(field)
        value = [list(pair) for pair in zip(columns.items(first), columns.items(second), strict=False)]
    pairs: list[tuple[str, Any]] = []
    for entry in cast("list[Any]", value or []):
        if isinstance(entry, dict):
            named = cast("dict[str, Any]", entry)
            entry = [named.get(first), named.get(second)]
        pair = cast("list[Any]", entry) if isinstance(entry, list) else []
        if len(pair) != 2 or not isinstance(pair[0], str):
            raise row.error(field, f"needs pairs of {first} and {second}, found {entry!r:.60}.")
        pairs.append((pair[0], pair[1]))
    return pairs


def _supporting(row: Row) -> tuple[tuple[str, int], ...]:
    pairs = _pairs(row, "supporting_facts", "title", "sent_id")
    if any(not isinstance(index, int) for _, index in pairs):
        raise row.error("supporting_facts", "needs a sentence index (a whole number) beside each title.")
    return tuple(pairs)


def _evidences(row: Row) -> tuple[tuple[str, str, str], ...]:
    triples: list[tuple[str, str, str]] = []
    for entry in row.items("evidences"):
        parts = [str(part) for part in cast("list[Any]", entry)] if isinstance(entry, list) else []
        if len(parts) != 3:
            raise row.error("evidences", f"needs triples of subject, relation and object, found {entry!r:.60}.")
        triples.append((parts[0], parts[1], parts[2]))
    return tuple(triples)


def _paragraphs(row: Row) -> list[tuple[Passage, bool]]:
    """MuSiQue's paragraphs, each with whether it supports the answer; a paragraph is one sentence."""
    found: list[tuple[Passage, bool]] = []
    for entry in row.items("paragraphs"):
        paragraph = Row(row.path, row.line, cast("dict[str, Any]", entry) if isinstance(entry, dict) else {})
        passage = Passage(paragraph.text("title"), (paragraph.text("paragraph_text"),))
        found.append((passage, paragraph.fields.get("is_supporting") is True))
    return found


def _marked(paragraphs: list[tuple[Passage, bool]]) -> tuple[tuple[str, int], ...]:
    return tuple((passage.title, place) for place, (passage, is_gold) in enumerate(paragraphs) if is_gold)


def _context(row: Row) -> tuple[Passage, ...]:
    passages: list[Passage] = []
    for title, sentences in _pairs(row, "context", "title", "sentences"):
        if not isinstance(sentences, list):
            raise row.error("context", f"needs a list of sentences for {title!r}, found {sentences!r:.60}.")
        passages.append(Passage(title, tuple(str(s) for s in cast("list[Any]", sentences))))
    return tuple(passages)
