"""Questions of PaperSearch, and reading their rows.

Read are rows with `query` (or `question`) and the wanted papers: `gold` (ids of the corpus), or titles under
`gold_titles` or `answer`. Optional are `description`, `date` or `year` (papers after it do not count), `citing` (the
paper that asks, which is not to be found), `kind` or `source`, and `plan`.
"""

import re
from dataclasses import dataclass
from typing import Any, cast

from agentr1_envs.prepared_rows import row_id
from agentr1_envs.rows import Row
from agentr1_envs.tasks import Task
from agentr1_envs.tool_env import digits_of_date

_READING_LIST_OF = re.compile(r"on its reading list: (?P<title>.+)$")
_CONTEXT = "Find the papers that are cited in place of [CITE] in this sentence: "


@dataclass(frozen=True, slots=True)
class PaperTask(Task):
    """A research question, and the papers that answer it. `answers` holds `gold`, then `gold_titles`."""

    gold: tuple[str, ...] = ()
    """Ids of the wanted papers."""
    gold_titles: tuple[str, ...] = ()
    """Titles of wanted papers that are named by title."""
    cutoff: str = ""
    """Digits of the date after which papers do not count; empty without one."""
    hidden: tuple[str, ...] = ()
    """Ids of papers that are never found."""
    hidden_titles: tuple[str, ...] = ()
    """Titles of such papers."""


def read_paper_task(row: Row, split: str) -> PaperTask:
    """The task of one row.

    Raises:
        DataRowError: a field is missing or mistyped.
    """
    query = row.text("query" if row.has("query") else "question")
    kind = row.text("kind", "") or row.text("source", "")
    gold, titles = _texts(row, "gold"), _texts(row, "gold_titles") or _texts(row, "answer")
    if gold:
        titles = ()
    if not gold and not titles:
        raise row.error("gold", "needs ids of the wanted papers, or their titles under 'gold_titles' or 'answer'.")
    list_of = _READING_LIST_OF.search(query)
    question = f"{_CONTEXT}{query}" if kind == "citation context" else query
    return PaperTask(
        task_id=row_id(row, split),
        split=split,
        question="\n\n".join(text for text in (question, row.text("description", "")) if text),
        answers=(*gold, *titles),
        plan=_texts(row, "plan"),
        kind=kind,
        gold=gold,
        gold_titles=titles,
        cutoff=digits_of_date(_date(row)),
        hidden=(row.text("citing"),) if row.has("citing") else (),
        # The data's tutorials are papers themselves, and what they cite is the answer.
        hidden_titles=(list_of["title"],) if list_of else (),
    )


def _texts(row: Row, field: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(item).strip() for item in row.items(field) if str(item).strip()))


def _date(row: Row) -> Any:
    details = row.fields.get("source_meta")
    published = cast("dict[str, Any]", details).get("published_time") if isinstance(details, dict) else None
    return row.fields.get("date") or row.fields.get("year") or published
