"""Reader of `{"name": ..., "arguments": {...}}` from a position in a text; every fault has an error of its own."""

import json
from typing import Any, cast

from agentr1_tools.formats.literals import LiteralError


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# strict=False: models write line breaks inside strings as they are.
_JSON = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)


def read_json_call(text: str, position: int) -> tuple[str, dict[str, Any], str, int]:
    """Read `{"name": ..., "arguments": {...}}` at `position`. Returns name, arguments, id and the end."""
    try:
        value, end = _JSON.raw_decode(text, position)
    except json.JSONDecodeError as error:
        raise LiteralError(f"broken JSON: {error.msg}", error.pos) from None
    except RecursionError:
        raise LiteralError("the JSON is nested too deeply", position) from None
    except ValueError as error:
        raise LiteralError(f"broken JSON: {error}", position) from None
    call = cast(dict[str, Any], value)
    name, arguments, mark = call.get("name"), call.get("arguments", {}), call.get("id", "")
    if not isinstance(name, str) or not name:
        raise LiteralError('the call needs "name", a string that is not empty', end)
    if isinstance(arguments, str):
        raise LiteralError('"arguments" is a string; write the object itself, not JSON inside a string', end)
    if not isinstance(arguments, dict):
        kind = "null" if arguments is None else "a list" if isinstance(arguments, list) else repr(arguments)[:40]
        raise LiteralError(f'"arguments" is {kind}; it must be an object', end)
    if "arguments" not in call and len(call.keys() - {"name", "id"}) > 0:
        raise LiteralError('put the arguments under the key "arguments"', end)
    return name, cast(dict[str, Any], arguments), mark if isinstance(mark, str) else "", end
