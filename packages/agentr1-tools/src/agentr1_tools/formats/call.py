"""`call`: `<tool_call>name("positional", key=value)</tool_call>`, the short form, and nothing else in the tag."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_tools.calls import ParsedResponse, ToolCall
from agentr1_tools.formats.literals import read_call, write_call
from agentr1_tools.formats.scan import MAX_CALLS, MAX_CHARS
from agentr1_tools.formats.schemas import signature_lines
from agentr1_tools.formats.tagged import CLOSE, OPEN, RESPONSE_OPEN, parse_tagged, render_responses
from agentr1_tools.result import ToolResult


@dataclass(frozen=True)
class CallFormat:
    """max_chars, max_calls: what is read of one response; more calls are refused with an error."""

    max_chars: int = MAX_CHARS
    max_calls: int = MAX_CALLS

    name = "call"
    call_end = CLOSE
    result_start = RESPONSE_OPEN
    names_arguments = True

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """One line a tool: its signature and what it does."""
        return (
            f"You can use these tools:\n{signature_lines(schemas)}\n\n"
            f'To use one, write {OPEN}name("text", key=value){CLOSE}; '
            "the answer comes back between <tool_response> and </tool_response>."
        )

    def parse(self, text: str) -> ParsedResponse:
        """Calls as `name(...)`; see `scan` for thinking and limits."""
        return parse_tagged(text, _read, max_chars=self.max_chars, max_calls=self.max_calls)

    def render(self, results: Sequence[tuple[str, ToolResult]]) -> str:
        """One `<tool_response>` a result."""
        return render_responses(results)

    def format_call(self, call: ToolCall) -> str:
        """Positional values first, then the named ones."""
        return f"{OPEN}{write_call(call.name, call.positional, call.arguments)}{CLOSE}"


def _read(text: str, position: int) -> tuple[ToolCall, int]:
    name, positional, named, end = read_call(text, position)
    return ToolCall(name, named, positional=positional), end
