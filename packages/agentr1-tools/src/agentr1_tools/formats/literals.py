"""Reader of `name("positional", key=value)`: a call with literal arguments, as Python or JSON spells them.

It reads from a position and says where the call ended, so a tag inside a string is only text. It evaluates nothing,
its depth and the number of its values are bounded, and it gives up at the first character that no literal can hold,
which keeps a scan of many broken calls linear.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

MAX_DEPTH = 32
MAX_VALUES = 2000
MAX_BRACKETS = 2000

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_KEY = re.compile(r"[A-Za-z_]\w*")
_KEYWORD = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_STRINGS = {
    '"': re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL),
}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}


_BRACKETS = re.compile(_STRINGS['"'].pattern + "|" + _STRINGS["'"].pattern + r"""|[\[\](){},;"']""", re.DOTALL)


class LiteralError(ValueError):
    """What stands at `position` is no call with literal arguments.

    ends_call: the text was read as a whole, up to `position`; only its meaning is wrong.
    """

    def __init__(self, message: str, position: int, *, ends_call: bool = False) -> None:
        super().__init__(message)
        self.position = position
        self.ends_call = ends_call


def read_call(text: str, position: int) -> tuple[str, tuple[Any, ...], dict[str, Any], int]:
    """Read `name(...)` at `position`. Returns name, positional values, named values and the end of the call."""
    name = _NAME.match(text, position)
    if name is None:
        raise LiteralError("expected a tool's name", position)
    position = skip(text, name.end())
    if not text.startswith("(", position):
        raise LiteralError(f"expected '(' after {name[0][:80]!r}", position)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    reader = _Reader(text)
    position = skip(text, position + 1)
    while not text.startswith(")", position):
        keyword = _KEYWORD.match(text, position)
        if keyword is not None:
            if keyword[1] in named:
                raise LiteralError(f"{keyword[1]!r} is given twice", position)
            named[keyword[1]], position = reader.value(skip(text, keyword.end()), 0)
        elif named:
            raise LiteralError("a value without a name follows one with a name", position)
        else:
            value, position = reader.value(position, 0)
            positional.append(value)
        position = _separator(text, position, ")")
    return name[0], tuple(positional), named, position + 1


def read_literal(text: str) -> Any:
    """Read a whole text as one literal. Raises LiteralError when it is none."""
    value, end = _Reader(text).value(skip(text, 0), 0)
    if skip(text, end) < len(text):
        raise LiteralError("text behind the value", end)
    return value


def write_value(value: Any) -> str:
    """A JSON value as a literal that `read_call` reads back: JSON's spelling, which the grammar above contains."""
    return json.dumps(value, ensure_ascii=False)


def write_call(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> str:
    """`name("positional", key=value)`, which `read_call` reads back.

    Raises ValueError for a name that cannot stand before a parenthesis or an equals sign.
    """
    if wrong := [word for word in (name, *named) if not (_NAME if word == name else _KEY).fullmatch(word)]:
        raise ValueError(f"{wrong[0]!r} cannot be written as a name; use a format that writes JSON")
    parts = [write_value(value) for value in positional]
    parts += [f"{key}={write_value(value)}" for key, value in named.items()]
    return f"{name}({', '.join(parts)})"


def skip(text: str, position: int) -> int:
    """The position of the next character that is no white space."""
    match = _SPACE.match(text, position)
    return match.end() if match else position


def behind_brackets(text: str, position: int) -> tuple[int, bool]:
    """Pass over one item of a list that may be broken: where it ends, or how far it was looked at, and which of both.

    It ends behind the bracket that closes its first one, or before a separator or closing bracket outside its own.
    Strings are passed over; one that is not closed, or too many brackets, and the end cannot be told.
    """
    depth = 0
    for count, token in enumerate(_BRACKETS.finditer(text, position)):
        sign = token[0][0]
        if count == MAX_BRACKETS:
            return token.start(), False
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
            if depth <= 0:
                return token.end() if depth == 0 else token.start(), True
        elif sign in ",;":
            if depth == 0:
                return token.start(), True
        elif token[0] in "\"'":
            break
    return len(text), False


def _separator(text: str, position: int, closing: str) -> int:
    """The position of the next item or of `closing`, after an item has been read."""
    position = skip(text, position)
    if text.startswith(",", position):
        return skip(text, position + 1)
    if not text.startswith(closing, position):
        raise LiteralError(f"expected ',' or {closing!r}", position)
    return position


class _Reader:
    """Reads the literals of one call, and counts them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left = MAX_VALUES

    def value(self, position: int, depth: int) -> tuple[Any, int]:
        """The literal at `position`, and where it ends."""
        text = self._text
        self._left -= 1
        if self._left < 0:
            raise LiteralError(f"more than {MAX_VALUES} values in one call", position)
        if depth > MAX_DEPTH:
            raise LiteralError(f"nested more than {MAX_DEPTH} deep", position)
        sign = text[position : position + 1]
        if sign in _STRINGS:
            return _string(text, position)
        if sign == "[":
            return self._list(position, depth)
        if sign == "{":
            return self._dict(position, depth)
        if word := _NAME.match(text, position):
            if word[0] not in _WORDS:
                raise LiteralError(f"{word[0][:80]!r} is no value; write strings in quotes", position)
            return _WORDS[word[0]], word.end()
        if number := _NUMBER.match(text, position):
            return _number(number[0], position), number.end()
        raise LiteralError("expected a string, a number, a list, a dict, true, false or null", position)

    def _list(self, position: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        position = skip(self._text, position + 1)
        while not self._text.startswith("]", position):
            value, position = self.value(position, depth + 1)
            items.append(value)
            position = _separator(self._text, position, "]")
        return items, position + 1

    def _dict(self, position: int, depth: int) -> tuple[dict[str, Any], int]:
        items: dict[str, Any] = {}
        position = skip(self._text, position + 1)
        while not self._text.startswith("}", position):
            key, position = self.value(position, depth + 1)
            if not isinstance(key, str):
                raise LiteralError("a dict's keys are strings", position)
            position = skip(self._text, position)
            if not self._text.startswith(":", position):
                raise LiteralError("expected ':'", position)
            items[key], position = self.value(skip(self._text, position + 1), depth + 1)
            position = _separator(self._text, position, "}")
        return items, position + 1


def _number(digits: str, position: int) -> int | float:
    try:
        return int(digits) if digits.lstrip("+-").replace("_", "").isdecimal() else float(digits)
    except ValueError:
        raise LiteralError("a number of that length cannot be read", position) from None


def _string(text: str, position: int) -> tuple[str, int]:
    match = _STRINGS[text[position]].match(text, position)
    if match is None:
        raise LiteralError("the string is not closed", position)
    return (_ESCAPE.sub(_unescape, match[1]) if "\\" in match[1] else match[1]), match.end()


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        character = chr(int(code[1:], 16))
        return character if not "\ud800" <= character <= "\udfff" else "\ufffd"
    return _ESCAPES.get(code, code if code in "\"'\\/" else f"\\{code}")
