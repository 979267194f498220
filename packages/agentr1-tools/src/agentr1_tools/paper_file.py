"""Paper: one paper of a corpus, and reading the files they lie in.

A corpus is a jsonl file. A line holds `id`, `title` and `abstract`, and may hold `date` or `year`, and `references`
(ids of the papers it cites). A file `edges.tsv` beside it adds references: citing id, tab, cited id, a line each.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from agentr1_tools.errors import ToolConfigError

EDGES_NAME = "edges.tsv"


@dataclass(frozen=True)
class Paper:
    """One paper: what a reader sees of it, and what it cites."""

    id: str
    title: str
    abstract: str
    date: str = ""
    """Digits of its date as far as it is known: "2019", "201905" or "20190521"; empty when it is not."""
    references: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Title and abstract: what is searched."""
        return f"{self.title}\n{self.abstract}"


def letters(title: str) -> str:
    """The letters of a title in lower case: how titles are compared. A title without letters stays as it is."""
    return "".join(char for char in title.lower() if char.isalpha()) or title.lower().strip()


def digits_of_date(date: object) -> str:
    """Year, month and day as far as they are given, without what stands between them: "2019-05" is "201905"."""
    return "" if date is None else "".join(char for char in str(date) if char.isdigit())[:8]


def is_later(date: str, limit: str) -> bool:
    """True when `date` lies after `limit` as far as both are known; an unknown date never does."""
    known = min(len(date), len(limit))
    return date[:known] > limit[:known]


def read_papers(path: Path) -> list[Paper]:
    """All papers of a corpus file, with the references of the `edges.tsv` beside it.

    Raises:
        FileNotFoundError: no such file. ToolConfigError: a row that cannot be read, named by line and field.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no corpus at {path}; give a jsonl file whose lines hold 'id', 'title' and 'abstract'")
    papers: dict[str, Paper] = {}
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                paper = _paper(line, f"{path}, line {number}")
                if papers.setdefault(paper.id, paper) is not paper:
                    raise ToolConfigError(f"{path}, line {number}: the id {paper.id!r} stands on an earlier line too")
    edges = path.with_name(EDGES_NAME)
    for citing, cited in _edges(edges, papers) if edges.is_file() else ():
        paper = papers[citing]
        if cited not in paper.references:
            papers[citing] = replace(paper, references=(*paper.references, cited))
    return list(papers.values())


def _paper(line: str, place: str) -> Paper:
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise ToolConfigError(f"{place}: not JSON ({error.msg} at column {error.colno})") from None
    if not isinstance(row, dict):
        raise ToolConfigError(f"{place}: not an object; a line is {{'id': ..., 'title': ..., 'abstract': ...}}")
    fields = cast(dict[str, Any], row)
    identity, title, abstract = (fields.get(name) for name in ("id", "title", "abstract"))
    if isinstance(identity, bool) or not isinstance(identity, (str, int)) or not str(identity).strip():
        raise ToolConfigError(f"{place}: 'id' is {identity!r}; it must be a string or a whole number")
    if not isinstance(title, str) or not title.strip():
        raise ToolConfigError(f"{place}: 'title' is {title!r}; it must be a string that is not empty")
    if abstract is not None and not isinstance(abstract, str):
        raise ToolConfigError(f"{place}: 'abstract' is {abstract!r:.60}; it must be a string")
    references = fields.get("references")
    if references is not None and not isinstance(references, list):
        raise ToolConfigError(f"{place}: 'references' is {references!r:.60}; it must be a list of ids")
    date = digits_of_date(fields.get("date") or fields.get("year"))
    cited = tuple(dict.fromkeys(str(item) for item in cast(list[Any], references or [])))
    return Paper(str(identity), title.strip(), (abstract or "").strip(), date, cited)


def _edges(path: Path, papers: dict[str, Paper]) -> Iterator[tuple[str, str]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            citing, _, cited = (part.strip() for part in line.rstrip("\n").partition("\t"))
            for name in (citing, cited):
                if name not in papers:
                    raise ToolConfigError(f"{path}, line {number}: {name!r} is no id of the corpus beside it")
            yield citing, cited
