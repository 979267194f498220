"""ToolFormat: how calls and results look in a conversation. A format only reads and writes text; it runs nothing."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from agentr1_tools.calls import ParsedResponse, ToolCall
from agentr1_tools.result import ToolResult


@runtime_checkable
class ToolFormat(Protocol):
    """One way of writing calls. Implementations keep no state, so one instance serves every episode.

    name: what it is registered as.
    call_end: the text that closes every call; empty where no text says for sure that a call is over.
    result_start: the text a result begins with: a model that writes it invents a result.
    names_arguments: False where the usual form of a call is one value without its name, as in `search[x]`.
    """

    name: str
    call_end: str
    result_start: str
    names_arguments: bool

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """Text for the system prompt: the tools (OpenAI function schemas) and how to call them."""
        ...

    def parse(self, text: str) -> ParsedResponse:
        """Take a whole response apart. Never raises; every call the model tried to make is a call or an error."""
        ...

    def render(self, results: Sequence[tuple[str, ToolResult]]) -> str:
        """One feedback message out of (tool name, result) pairs in call order."""
        ...

    def format_call(self, call: ToolCall) -> str:
        """The call as a demonstration would write it; `parse` reads it back."""
        ...
