"""WikiIndex: a corpus of titled passages in memory, with BM25 and look-ups by title.

Opened once a process for each file, read-only, shared by every caller. It reads no network and writes no file.
"""

import json
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

from rapidfuzz import fuzz, process

from agentr1_tools.bm25 import Bm25, words
from agentr1_tools.errors import ToolConfigError

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_TITLE_WEIGHT = 2
_opened: dict[Path, "WikiIndex"] = {}
_opening = threading.Lock()


@dataclass(frozen=True)
class Passage:
    """One passage of the corpus; `id` is what the file says, or the line's number counted from 0."""

    id: str | int
    title: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """The sentences, one space between them."""
        return " ".join(self.sentences)


@dataclass(frozen=True)
class Hit:
    """A passage a search found, with its score: BM25 here, an inner product in `dense_index`."""

    passage: Passage
    score: float


class Searcher(Protocol):
    """Anything that finds passages."""

    def search(self, query: str, k: int = 5) -> list[Hit]:
        """The best `k` passages, best first."""
        ...

    def search_many(self, queries: Sequence[str], k: int = 5) -> list[list[Hit]]:
        """As `search`, one list for each query, where that is cheaper together."""
        ...


class WikiIndex:
    """BM25 (Lucene's form, k1 1.5, b 0.75) over title and text; title words count twice, ties go by corpus order."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self.passages = tuple(passages)
        if not self.passages:
            raise ToolConfigError("the corpus holds no passage; give at least one with a title and a text")
        self._bm25 = Bm25(_words_of(passage) for passage in self.passages)

    @staticmethod
    def load(path: str | Path) -> "WikiIndex":
        """The index of a corpus, built at the first call and shared afterwards; see `read_passages`."""
        resolved = Path(path).expanduser().resolve()
        with _opening:
            if resolved not in _opened:
                _opened[resolved] = WikiIndex(read_passages(resolved))
            return _opened[resolved]

    def search(self, query: str, k: int = 5) -> list[Hit]:
        """The best `k` passages that share a word with the query, best first."""
        return [Hit(self.passages[place], score) for place, score in self._bm25.best(query, k)]

    def search_many(self, queries: Sequence[str], k: int = 5) -> list[list[Hit]]:
        """As `search`, one list for each query."""
        return [self.search(query, k) for query in queries]

    def by_title(self, title: str) -> Passage | None:
        """The passage of this title, whatever its case and spacing; the first of the corpus when several share it."""
        return self._by_title.get(_title_key(title))

    def similar_titles(self, title: str, k: int = 5) -> list[str]:
        """The `k` titles most similar to this one (normalised edit similarity), best first, ties by corpus order."""
        keys = list(self._by_title)
        found = process.extract(_title_key(title), keys, scorer=fuzz.ratio, limit=k)
        return [self._by_title[key].title for key, _, _ in found]

    @cached_property
    def _by_title(self) -> dict[str, Passage]:
        titles: dict[str, Passage] = {}
        for passage in self.passages:
            titles.setdefault(_title_key(passage.title), passage)
        return titles


def read_passages(path: Path) -> list[Passage]:
    """All passages of a jsonl file; of a folder, those of its `corpus.jsonl`.

    A line holds `title` and `sentences` (a list) or `text`, or, as in Search-R1's corpora, `contents` (the title, a
    line break, the text); it may hold `id`. Raises FileNotFoundError for a missing file and ToolConfigError naming line
    and field of a row that cannot be read.
    """
    place = path / "corpus.jsonl" if path.is_dir() else path
    if not place.is_file():
        raise FileNotFoundError(
            f"no corpus at {place}; give a jsonl file whose lines hold 'title' and 'sentences' or 'text', or a folder "
            "with such a corpus.jsonl"
        )
    passages: list[Passage] = []
    with place.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                passages.append(_passage(line, number, place, len(passages)))
    return passages


def title_and_text(contents: str) -> tuple[str, str]:
    """Take `contents` apart: the first line is the title, in quotes or bare; one line alone is both."""
    first, newline, rest = contents.partition("\n")
    title = first[1:-1] if len(first) > 2 and first[0] == first[-1] == '"' else first
    return title, rest if newline else first


def _passage(line: str, number: int, path: Path, position: int) -> Passage:
    def wrong(problem: str) -> ToolConfigError:
        return ToolConfigError(f"{path}, line {number}: {problem}")

    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise wrong(f"not JSON ({error.msg} at column {error.colno})") from None
    if not isinstance(row, dict):
        raise wrong("not an object; a line is {'title': ..., 'sentences': [...] or 'text': ...}")
    fields = cast(dict[str, Any], row)
    if isinstance(contents := fields.get("contents"), str) and not {"title", "sentences", "text"} & fields.keys():
        fields["title"], fields["text"] = title_and_text(contents)
    identity, title = fields.get("id", position), fields.get("title")
    if not isinstance(identity, (str, int)):
        raise wrong(f"'id' is {identity!r}; it must be a string or a whole number")
    if not isinstance(title, str) or not title.strip():
        raise wrong(f"'title' is {title!r}; it must be a string that is not empty")
    sentences, text = fields.get("sentences"), fields.get("text")
    if isinstance(sentences, list) and all(isinstance(part, str) for part in cast(list[Any], sentences)):
        parts = cast(list[str], sentences)
    elif sentences is None and isinstance(text, str):
        parts = _SENTENCE_END.split(text)
    else:
        raise wrong("needs 'sentences', a list of strings, or 'text', a string")
    return Passage(identity, title, tuple(part.strip() for part in parts if part.strip()))


def _words_of(passage: Passage) -> list[str]:
    return words(passage.title) * _TITLE_WEIGHT + words(passage.text)


def _title_key(title: str) -> str:
    return " ".join(title.replace("_", " ").casefold().split())
