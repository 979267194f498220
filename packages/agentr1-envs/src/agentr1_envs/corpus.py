"""A corpus of titled passages, looked up by title: opened lazily, once a process, read-only, shared.

Ranked search is the business of the tool `wiki_search`; this file only finds a title, or titles that look like it.
"""

import os
from functools import cached_property
from pathlib import Path

from rapidfuzz import fuzz, process

from agentr1_envs.errors import DataNotFoundError, DataRowError
from agentr1_envs.once import OncePerProcess
from agentr1_envs.rows import read_rows
from agentr1_envs.tasks import Passage


class Corpus:
    """Passages by title; a title is compared without regard to case and blanks."""

    def __init__(self, passages: tuple[Passage, ...], source: str) -> None:
        self.source = source
        self._by_title = {_key(passage.title): passage for passage in reversed(passages)}

    def __len__(self) -> int:
        return len(self._by_title)

    def find(self, title: str) -> Passage | None:
        """The passage with this title, or None."""
        return self._by_title.get(_key(title))

    def similar(self, title: str, count: int = 5) -> list[str]:
        """The `count` titles that look most like `title`, best first; equal scores in title order."""
        hits = process.extract(_key(title), self._keys, scorer=fuzz.WRatio, limit=count * 4)
        ranked = sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:count]
        return [self._by_title[key].title for key, _, _ in ranked]

    @cached_property
    def _keys(self) -> list[str]:
        return sorted(self._by_title)


_OPENED = OncePerProcess[Corpus](kept=4)


def open_corpus(path: str | os.PathLike[str]) -> Corpus:
    """The corpus in a jsonl file of ``{"title", "sentences"}`` or ``{"title", "text"}`` lines.

    Raises:
        DataNotFoundError: no such file. DataRowError: a bad line.
    """
    place = check_corpus_path(path)
    status = place.stat()
    return _OPENED.get((place, status.st_mtime_ns, status.st_size), lambda: Corpus(read_passages(place), str(place)))


def check_corpus_path(path: str | os.PathLike[str]) -> Path:
    """The path, if a file is there.

    Raises:
        DataNotFoundError: no file is there.
    """
    place = Path(path).expanduser()
    if not place.is_file():
        raise DataNotFoundError(
            f"corpus={str(path)!r}: there is no file {place.absolute()}. A corpus is a jsonl file of "
            '{"title", "sentences"} lines; make one from official files with '
            "`agentr1-envs prepare hotpotqa --source PATH --out PATH`."
        )
    return place.resolve()


def read_passages(path: Path) -> tuple[Passage, ...]:
    """The passages of a corpus file, in order.

    Raises:
        DataRowError: a bad line.
    """
    passages: list[Passage] = []
    for row in read_rows(path):
        if isinstance(row, DataRowError):
            raise row
        sentences = [str(sentence) for sentence in row.items("sentences")] or [row.text("text")]
        passages.append(Passage(row.text("title"), tuple(sentences)))
    return tuple(passages)


def _key(title: str) -> str:
    return " ".join(title.casefold().split())
