"""Reader of `{"name": ..., "arguments": {...}}` from a position in a text; every fault has an error of its own."""

import json
from collections.abc import Sequence
from typing import Any, cast

from agentr1_tools.calls import ToolCall
from agentr1_tools.formats.literals import LiteralError


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# strict=False: models write line breaks inside strings as they are.
_JSON = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)

_KEY = r'"(?:arguments|parameters)"'
_TYPE = r'(?:"type"\s*+:\s*+"function"\s*+,\s*+)?'
CALL_BEGINS = rf'\{{\s*+{_TYPE}"name"\s*+:\s*+"[^"\\]{{1,128}}"\s*+,\s*+{_KEY}\s*+:'
"""A pattern of the usual beginning of a call, strict enough to find one again in broken text."""


def read_json_call(
    text: str, position: int, keys: Sequence[str] = ("arguments",)
) -> tuple[str, dict[str, Any], str, int]:
    """Read `{"name": ..., "arguments": {...}}` at `position`. Returns name, arguments, id and the end.

    keys: what the arguments may stand under, the usual key first.
    """
    value, end = _read(text, position)
    if not isinstance(value, dict):
        raise LiteralError(f'expected {{"name": ..., "{keys[0]}": {{...}}}}', position)
    call = cast(dict[str, Any], value)
    name, mark = call.get("name"), call.get("id", "")
    if not isinstance(name, str) or not name:
        raise LiteralError('the call needs "name", a string that is not empty', end, ends_call=True)
    key = next((key for key in keys if key in call), keys[0])
    arguments = _checked(call.get(key, {}), f'"{key}" is', end)
    if key not in call and len(call.keys() - {"name", "id", "type"}) > 0:
        raise LiteralError(f'put the arguments under the key "{key}"', end, ends_call=True)
    return name, arguments, mark if isinstance(mark, str) else "", end


def read_arguments(text: str, position: int) -> tuple[dict[str, Any], int]:
    """Read the arguments alone, a JSON object at `position`. Returns them and the end."""
    value, end = _read(text, position)
    return _checked(value, "the arguments are", end), end


def named_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call that is written as JSON. Raises ValueError for values without a name."""
    if call.positional:
        raise ValueError(f"JSON holds arguments by name; give {call.name!r} its {len(call.positional)} values so")
    return call.arguments


def _read(text: str, position: int) -> tuple[Any, int]:
    try:
        return _JSON.raw_decode(text, position)
    except json.JSONDecodeError as error:
        raise LiteralError(f"broken JSON: {error.msg}", error.pos) from None
    except RecursionError:
        raise LiteralError("the JSON is nested too deeply", position) from None
    except ValueError as error:
        raise LiteralError(f"broken JSON: {error}", position) from None


def _checked(arguments: Any, subject: str, end: int) -> dict[str, Any]:
    if isinstance(arguments, dict):
        return cast(dict[str, Any], arguments)
    if isinstance(arguments, str):
        problem = f"{subject} a string; write the object itself, not JSON inside a string"
    else:
        kind = "null" if arguments is None else "a list" if isinstance(arguments, list) else repr(arguments)[:40]
        problem = f"{subject} {kind}; write an object"
    raise LiteralError(problem, end, ends_call=True)
