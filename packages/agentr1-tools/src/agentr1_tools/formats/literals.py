"""Reader of `name("positional", key=value)`: a call with literal arguments, as Python or JSON spells them.

It reads from a position and says where the call ended, so a tag inside a string is only text. It evaluates nothing,
its depth is bounded, and it gives up at the first character that no literal can hold, which keeps a scan of many broken
calls linear.
"""

import json
import re
from typing import Any

MAX_DEPTH = 32

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_KEYWORD = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_STRINGS = {
    '"': re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL),
}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}


class LiteralError(ValueError):
    """What stands at `position` is no call with literal arguments."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def read_call(text: str, position: int) -> tuple[str, tuple[Any, ...], dict[str, Any], int]:
    """Read `name(...)` at `position`. Returns name, positional values, named values and the end of the call."""
    name = _NAME.match(text, position)
    if name is None:
        raise LiteralError("expected a tool's name", position)
    position = _skip(text, name.end())
    if not text.startswith("(", position):
        raise LiteralError(f"expected '(' after {name[0]!r}", position)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    position = _skip(text, position + 1)
    while not text.startswith(")", position):
        keyword = _KEYWORD.match(text, position)
        if keyword is not None:
            if keyword[1] in named:
                raise LiteralError(f"{keyword[1]!r} is given twice", position)
            named[keyword[1]], position = _value(text, _skip(text, keyword.end()), 0)
        elif named:
            raise LiteralError("a value without a name follows one with a name", position)
        else:
            value, position = _value(text, position, 0)
            positional.append(value)
        position = _separator(text, position, ")")
    return name[0], tuple(positional), named, position + 1


def write_value(value: Any) -> str:
    """A JSON value as a literal that `read_call` reads back: JSON's spelling, which the grammar above contains."""
    return json.dumps(value, ensure_ascii=False)


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _separator(text: str, position: int, closing: str) -> int:
    """The position of the next item or of `closing`, after an item has been read."""
    position = _skip(text, position)
    if text.startswith(",", position):
        return _skip(text, position + 1)
    if not text.startswith(closing, position):
        raise LiteralError(f"expected ',' or {closing!r}", position)
    return position


def _value(text: str, position: int, depth: int) -> tuple[Any, int]:
    if depth > MAX_DEPTH:
        raise LiteralError(f"nested more than {MAX_DEPTH} deep", position)
    sign = text[position : position + 1]
    if sign in _STRINGS:
        return _string(text, position)
    if sign == "[":
        return _list(text, position, depth)
    if sign == "{":
        return _dict(text, position, depth)
    if word := _NAME.match(text, position):
        if word[0] not in _WORDS:
            raise LiteralError(f"{word[0]!r} is no value; write strings in quotes", position)
        return _WORDS[word[0]], word.end()
    if number := _NUMBER.match(text, position):
        return _number(number[0], position), number.end()
    raise LiteralError("expected a string, a number, a list, a dict, true, false or null", position)


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


def _list(text: str, position: int, depth: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    position = _skip(text, position + 1)
    while not text.startswith("]", position):
        value, position = _value(text, position, depth + 1)
        items.append(value)
        position = _separator(text, position, "]")
    return items, position + 1


def _dict(text: str, position: int, depth: int) -> tuple[dict[str, Any], int]:
    items: dict[str, Any] = {}
    position = _skip(text, position + 1)
    while not text.startswith("}", position):
        key, position = _value(text, position, depth + 1)
        if not isinstance(key, str):
            raise LiteralError("a dict's keys are strings", position)
        position = _skip(text, position)
        if not text.startswith(":", position):
            raise LiteralError("expected ':'", position)
        items[key], position = _value(text, _skip(text, position + 1), depth + 1)
        position = _separator(text, position, "}")
    return items, position + 1
