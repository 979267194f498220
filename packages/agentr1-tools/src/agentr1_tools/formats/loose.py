"""Arguments in formats that usually give one value as plain text: that text, or a JSON object of named ones."""

import re

from agentr1_tools.calls import ToolCall, Untyped
from agentr1_tools.formats.json_call import read_arguments
from agentr1_tools.formats.literals import LiteralError, skip

_OBJECT = re.compile(r'\{\s*+["}]')
_JSON = re.compile(r'\[|"\s*+[\[{]|"\\|null\s*+\Z')


def begins_object(text: str, position: int) -> bool:
    """True when a JSON object, rather than any text with a brace, stands at `position`."""
    return _OBJECT.match(text, position) is not None


def read_plain(name: str, text: str) -> ToolCall:
    """The call of `name` whose arguments are a whole text.

    It is one value without a name, none when blank, or a JSON object of named values. Raises LiteralError for JSON that
    is something else or broken.
    """
    text = text.strip()
    if not text:
        return ToolCall(name)
    if begins_object(text, 0):
        arguments, end = read_arguments(text, 0)
        if skip(text, end) < len(text):
            raise LiteralError("text behind the JSON object", end)
        return ToolCall(name, arguments)
    if _JSON.match(text):
        _refuse_json(text)
    return ToolCall(name, positional=(Untyped(text),))


def plain_value(call: ToolCall) -> str | None:
    """The text of a call with nothing but one text without a name; "" for a call without arguments."""
    if call.arguments or len(call.positional) > 1:
        return None
    value = call.positional[0] if call.positional else ""
    return value if isinstance(value, str) else None


def _refuse_json(text: str) -> None:
    """Raise LiteralError for a list, null, or JSON inside a string; other text only looks like JSON."""
    try:
        read_arguments(text, 0)
    except LiteralError as error:
        if error.ends_call and skip(text, error.position) == len(text):
            raise LiteralError(f"{error}, or one value as plain text", error.position, ends_call=True) from None
