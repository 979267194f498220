"""What a docstring says of a function and its parameters (Google, NumPy, reST and Epydoc styles)."""

import inspect
from collections.abc import Callable
from typing import Any

import docstring_parser


def described(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The summary with its long description, and the description of each documented parameter."""
    parsed = docstring_parser.parse(inspect.getdoc(function) or "")
    parts = [part.strip() for part in (parsed.short_description, parsed.long_description) if part]
    parameters = {
        parameter.arg_name: " ".join(parameter.description.split())
        for parameter in parsed.params
        if parameter.description
    }
    return "\n\n".join(parts), parameters
