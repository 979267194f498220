"""How an exception travels: by its class's name, what it was made from, and its text.

The other side raises the same class where it knows it: a built-in one, one of Gymnasium's, or one of this package.
Of a stranger's class it raises the nearest base it knows. Reading a name imports nothing.
"""

import builtins
from collections.abc import Iterable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

import gymnasium.error

import agentr1_envs.errors
from agentr1_envs.errors import RemoteError
from agentr1_envs.wire import dumps

_KNOWN_MODULES: tuple[ModuleType, ...] = (builtins, gymnasium.error, agentr1_envs.errors)


def pack_error(error: BaseException) -> dict[str, Any]:
    """What is told of an exception.

    Returns:
        `classes` (the names of its class and bases, nearest first), `args` (what makes it again; None when they cannot
        travel), `text`.
    """
    return {
        "classes": [_name(kind) for kind in type(error).__mro__[:-1]],
        "args": _arguments(error),
        "text": _text(error),
    }


def unpack_error(told: Mapping[str, Any]) -> Exception:
    """The exception that is to be raised here.

    Its class is the one that was raised there, or the nearest base that is known here; then its text begins with the
    name of the class it had.
    """
    match told:
        case {"classes": [str(), *_], "args": list() | None, "text": str() as text}:
            return _rebuild(told["classes"], told["args"], text)
        case _:
            return RemoteError(f"The server reported an error in a form that is not known: {str(dict(told))[:200]}.")


def raise_error(told: Mapping[str, Any], origin: str) -> None:
    """Raise what was told of, with a note that says where it happened."""
    error = unpack_error(told)
    error.add_note(f"raised by the environment at {origin}")
    raise error


def _rebuild(classes: list[str], arguments: list[Any] | None, text: str) -> Exception:
    known = _known_classes()
    if classes[0] in known and arguments is not None:
        try:
            same = known[classes[0]](*arguments)
        except Exception:  # its constructor wants something else
            same = None
        if same is not None and str(same) == text:
            return same
    nearest = next((known[name] for name in classes if name in known), RuntimeError)
    shown = text if classes[0] in known else f"{classes[0].rpartition('.')[2]}: {text}"
    error = nearest.__new__(nearest)  # without its constructor, which may want something else
    error.args = (shown,)
    return error


def _arguments(error: BaseException) -> list[Any] | None:
    try:
        reduced = error.__reduce__()
        arguments = list(reduced[1]) if isinstance(reduced, tuple) else None
        dumps(arguments)
    except Exception:  # what is not known to travel stays: its text does
        return None
    return arguments


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # of a stranger's making
        return f"(a {type(error).__name__} that has no text)"


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


@cache
def _known_classes() -> dict[str, type[Exception]]:
    return {_name(kind): kind for kind in _exceptions(_KNOWN_MODULES)}


def _exceptions(modules: Iterable[ModuleType]) -> list[type[Exception]]:
    found = (value for module in modules for value in vars(module).values())
    return [kind for kind in found if isinstance(kind, type) and issubclass(kind, Exception)]
