"""`call`: `<tool_call>name("positional", key=value)</tool_call>`, the short form, and nothing else in the tag."""

from collections.abc import Sequence
from typing import Any

from agentr1_tools.calls import ParsedResponse, ToolCall
from agentr1_tools.formats.literals import read_call, write_value
from agentr1_tools.formats.tagged import (
    CLOSE,
    MAX_CALLS,
    MAX_CHARS,
    OPEN,
    parse_tagged,
    render_responses,
)
from agentr1_tools.result import ToolResult


class CallFormat:
    """max_chars, max_calls: what is read of one response; more calls are refused with an error."""

    name = "call"

    def __init__(self, max_chars: int = MAX_CHARS, max_calls: int = MAX_CALLS) -> None:
        self._max_chars = max_chars
        self._max_calls = max_calls

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """One line a tool: its signature and what it does."""
        tools = "\n".join(f"- {_signature(schema)}: {schema['function']['description']}" for schema in schemas)
        return (
            f"You can use these tools:\n{tools}\n\n"
            f'To use one, write {OPEN}name("text", key=value){CLOSE}; '
            "the answer comes back between <tool_response> and </tool_response>."
        )

    def parse(self, text: str) -> ParsedResponse:
        """Calls as `name(...)`; see `parse_tagged` for thinking, limits and errors."""
        return parse_tagged(text, _read, max_chars=self._max_chars, max_calls=self._max_calls)

    def render(self, results: Sequence[tuple[str, ToolResult]]) -> str:
        """One `<tool_response>` a result."""
        return render_responses(results)

    def format_call(self, call: ToolCall) -> str:
        """Positional values first, then the named ones."""
        parts = [write_value(value) for value in call.positional]
        parts += [f"{name}={write_value(value)}" for name, value in call.arguments.items()]
        return f"{OPEN}{call.name}({', '.join(parts)}){CLOSE}"


def _read(text: str, position: int) -> tuple[ToolCall, int]:
    name, positional, named, end = read_call(text, position)
    return ToolCall(name, named, positional=positional), end


def _signature(schema: dict[str, Any]) -> str:
    """`name(first, second=default)` of an OpenAI function schema."""
    function = schema["function"]
    required = set(function["parameters"].get("required", []))
    properties: dict[str, dict[str, Any]] = function["parameters"].get("properties", {})
    parts = [
        name if name in required else f"{name}={write_value(details.get('default'))}"
        for name, details in properties.items()
    ]
    return f"{function['name']}({', '.join(parts)})"
