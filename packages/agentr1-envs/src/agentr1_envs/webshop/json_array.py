"""The elements of a JSON array, one at a time: a file of gigabytes need not be held. Knows nothing of products."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from agentr1_envs.errors import SettingError

CHUNK = 1 << 22
"""Characters that are read at a time."""
LONGEST_ELEMENT = 1 << 26
"""An element longer than this many characters is taken for a fault of the file."""

_ENDS = (",", "]")
_BLANKS = re.compile(r"[ \t\r\n]*")


def array_elements(path: Path, chunk: int = CHUNK) -> Iterator[Any]:
    """The elements of the array that a file holds, in order.

    Raises:
        SettingError: the file is no JSON array; told where the fault is met, so elements before it have come.
    """
    with path.open(encoding="utf-8") as source:
        reader = _Reader(source, chunk)
        try:
            yield from _elements(reader)
        except UnicodeDecodeError as error:
            raise SettingError(f"{path} is no JSON: {error}") from error
        except _Fault as fault:
            raise SettingError(f"{path}: {fault}") from fault


def _elements(reader: "_Reader") -> Iterator[Any]:
    start = reader.take()
    if start != "[":
        raise _Fault(f"needs a list of products, starts with {start!r}" if start else "is empty")
    if reader.peek() == "]":
        reader.take()
    else:
        while True:
            yield reader.element()
            mark = reader.take()
            if mark == "]":
                break
            if mark != ",":
                raise _Fault(
                    f"is no JSON: {mark!r} stands behind an element" if mark else "is no JSON: it is cut short"
                )
    if rest := reader.take():
        raise _Fault(f"is no JSON: {rest!r} stands behind the list")


class _Fault(Exception):
    """What is wrong with the file."""


class _Reader:
    """The text of a file, of which a part is held, and the place that was reached in it."""

    def __init__(self, source: TextIO, chunk: int) -> None:
        self._source, self._chunk = source, chunk
        self._decoder = json.JSONDecoder()
        self._text, self._at = "", 0

    def peek(self) -> str:
        """The next character that is no blank; empty at the end."""
        while True:
            self._at = self._behind_blanks(self._at)
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def take(self) -> str:
        """As `peek`, and step past it."""
        found = self.peek()
        self._at += len(found)
        return found

    def element(self) -> Any:
        """The value that begins at the next character."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._is_too_long() or not self._more():
                    raise _Fault(f"is no JSON: {error.msg}") from error
                continue
            # A number at the end of what is held may go on: "1." may become "1.5".
            behind = self._behind_blanks(end)
            if self._text[behind : behind + 1] in _ENDS or self._is_too_long() or not self._more():
                self._at = end
                return value

    def _behind_blanks(self, at: int) -> int:
        blanks = _BLANKS.match(self._text, at)
        return blanks.end() if blanks else at

    def _is_too_long(self) -> bool:
        return len(self._text) - self._at > LONGEST_ELEMENT

    def _more(self) -> bool:
        read = self._source.read(self._chunk)
        if read:
            self._text, self._at = self._text[self._at :] + read, 0
        return bool(read)
