"""The records a response is parsed into: calls, calls that could not be read, and the text around them."""

from dataclasses import dataclass, field
from typing import Any


class Untyped(str):
    """The text of an argument in a format that does not tell text from numbers.

    The tool box reads it by the tool's schema: it stays text where the schema takes text, else it becomes the number,
    truth value, list or object it spells.
    """


@dataclass(frozen=True)
class ToolCall:
    """One call a model made.

    arguments: by name. positional: values without a name, in order; the tool box gives them the names of the schema's
    properties, in the schema's order. id: the caller's own mark, may be empty.
    """

    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    id: str = ""
    positional: tuple[Any, ...] = ()


@dataclass(frozen=True)
class CallError:
    """A call the model tried to make and that could not be read.

    code: `PARSE_ERROR`. message: what is wrong and what is legal, for the model. raw: the start of what it wrote.
    """

    code: str
    message: str
    raw: str = ""


@dataclass(frozen=True)
class ParsedResponse:
    """A response taken apart.

    content: the text outside calls and outside thinking, stripped. items: calls and errors in the order they stand.
    """

    content: str
    items: tuple[ToolCall | CallError, ...] = ()

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that could be read."""
        return tuple(item for item in self.items if isinstance(item, ToolCall))

    @property
    def errors(self) -> tuple[CallError, ...]:
        """The calls that could not."""
        return tuple(item for item in self.items if isinstance(item, CallError))
