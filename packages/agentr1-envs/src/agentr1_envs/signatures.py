"""Signatures that spell out what a function takes as ``**settings``, for `help`, editors and the documentation.

It changes what is shown, never what is accepted; a test holds the two equal for every registered environment.
"""

import inspect
from collections.abc import Callable, Collection
from dataclasses import MISSING, fields
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

EPISODE: dict[str, Any] = {"observation": "text", "history": None, "render_mode": None}
"""What every `AgentEnv` takes, with its defaults."""


def takes(*kinds: type, without: Collection[str] = (), **defaults: Any) -> Callable[[Function], Function]:
    """Show these in the signature in place of ``**settings``.

    Args:
        kinds: dataclasses whose fields are settings.
        without: fields that are not accepted here.
        defaults: further settings with their defaults, and fields whose default is another here.
    """
    own = {
        field.name: field.default if field.default is not MISSING else inspect.Parameter.empty
        for kind in kinds
        for field in fields(kind)
        if field.name not in without
    }
    settings = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in {**own, **defaults}.items()
    ]

    def show(function: Function) -> Function:
        plain = inspect.signature(function)
        named = [item for item in plain.parameters.values() if item.kind is not inspect.Parameter.VAR_KEYWORD]
        setattr(function, "__signature__", plain.replace(parameters=[*named, *settings]))  # noqa: B010 (a function has no such field to the type checker)
        setattr(function, "settings_kinds", kinds)  # noqa: B010
        return function

    return show
