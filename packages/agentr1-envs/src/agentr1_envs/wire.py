"""How values and spaces travel between an environment server and its client: as JSON that loses no type.

Strings, booleans, numbers, None, lists, and dicts with string keys are themselves. What JSON lacks is an object with a
single key that begins with "!":

    {"!tuple": [item, ...]}                   a tuple
    {"!float": "nan"}                         nan, inf or -inf
    {"!array": [dtype, shape, [item, ...]]}   a numpy array of numbers or truth values, row by row
    {"!scalar": [dtype, item]}                a numpy number or truth value
    {"!dict": [[key, value], ...]}            a dict with other keys, or whose keys begin with "!"

Text is written in ASCII, so that any of it gets through, lone surrogates too. Nothing is pickled, and reading makes
nothing but the types named here.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from gymnasium import spaces

from agentr1_envs.errors import WireError
from agentr1_envs.spaces import Messages, Text

_NUMBERS = frozenset(
    (
        "bool",
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
        "float16",
        "float32",
        "float64",
    )
)


def dumps(message: Any, what: str = "the message") -> str:
    """A value as JSON text.

    Raises:
        WireError: it holds something that cannot travel; `what` opens the error's text.
    """
    try:
        return json.dumps(_pack(message, what), allow_nan=False)
    except RecursionError:
        raise WireError(f"{what} is nested too deeply to travel as JSON.") from None


def loads(text: str) -> Any:
    """The value that `dumps` was given.

    Raises:
        WireError: the text is no JSON, or has a tag that is not known.
    """
    try:
        return _unpack(json.loads(text))
    except WireError:
        raise
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise WireError(f"Not JSON as environments send it: {error}.") from None


def pack_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """What a space is made from.

    Raises:
        WireError: it is no space of text.
    """
    match space:
        case Text():
            return {"space": "Text", "max_length": space.max_length, "min_length": space.min_length}
        case Messages():
            return {"space": "Messages", "roles": list(space.roles)}
        case spaces.Text():
            return {
                "space": "gymnasium.Text",
                "max_length": space.max_length,
                "min_length": space.min_length,
                "charset": space.characters,
            }
        case _:
            raise WireError(
                f"{space} cannot be served: environments whose actions and observations are text can, "
                "with the spaces agentr1_envs.Text, agentr1_envs.Messages and gymnasium.spaces.Text."
            )


def unpack_space(told: Mapping[str, Any]) -> spaces.Space[Any]:
    """The space that `pack_space` was given.

    Raises:
        WireError: there is no such space.
    """
    match told:
        case {"space": "Text", "max_length": longest, "min_length": shortest}:
            return Text(longest, min_length=shortest)
        case {"space": "Messages", "roles": roles}:
            return Messages(tuple(roles))
        case {"space": "gymnasium.Text", "max_length": longest, "min_length": shortest, "charset": charset}:
            return spaces.Text(longest, min_length=shortest, charset=charset)
        case _:
            raise WireError(f"The server tells of a space that is not known here: {dict(told)}.")


def _pack(value: Any, where: str) -> Any:
    match value:
        case None | bool():
            return value
        case str():
            return str(value)
        case np.generic() | np.ndarray():
            return _pack_numpy(cast("np.ndarray[Any, Any]", value), where)
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else {"!float": repr(float(value))}
        case list():
            return [_pack(item, where) for item in cast("list[Any]", value)]
        case tuple():
            return {"!tuple": [_pack(item, where) for item in cast("tuple[Any, ...]", value)]}
        case Mapping():
            entries = cast("Mapping[Any, Any]", value)
            if all(isinstance(key, str) and not key.startswith("!") for key in entries):
                return {str(key): _pack(item, where if where else key) for key, item in entries.items()}
            return {"!dict": [[_pack(key, where), _pack(item, where)] for key, item in entries.items()]}
        case _:
            raise WireError(
                f"{where} holds {type(value).__name__}, which cannot travel as JSON; legal are strings, numbers, truth "
                "values, None, and lists, tuples, dicts and numpy arrays of them."
            )


def _pack_numpy(value: "np.ndarray[Any, Any] | np.generic", where: str) -> dict[str, Any]:
    name = value.dtype.name
    if name not in _NUMBERS:
        raise WireError(f"{where} holds numpy's {name}; legal are {', '.join(sorted(_NUMBERS))}.")
    if isinstance(value, np.generic):
        return {"!scalar": [name, _pack(value.item(), where)]}
    return {"!array": [name, list(value.shape), [_pack(item, where) for item in value.ravel().tolist()]]}


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    entries = cast("dict[str, Any]", value)
    if len(entries) != 1 or not next(iter(entries)).startswith("!"):
        return {key: _unpack(item) for key, item in entries.items()}
    match entries:
        case {"!tuple": [*items]}:
            return tuple(_unpack(item) for item in items)
        case {"!float": "nan" | "inf" | "-inf" as number}:
            return float(number)
        case {"!dict": [*pairs]}:
            return {_unpack(key): _unpack(item) for key, item in pairs}
        case {"!scalar": [str() as name, item]} if name in _NUMBERS:
            return np.dtype(name).type(_unpack(item))
        case {"!array": [str() as name, [*shape], [*items]]} if name in _NUMBERS:
            return _unpack_array(name, shape, items)
        case _:
            raise WireError(f"Not a value as environments send it: {str(entries)[:100]}.")


def _unpack_array(name: str, shape: Sequence[int], items: Sequence[Any]) -> "np.ndarray[Any, Any]":
    return np.array([_unpack(item) for item in items], dtype=name).reshape(tuple(shape))
