"""`hermes`: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, the form of Hermes and Qwen models.

It also takes `name("positional", key=value)` in the same tag, which is the form `call` writes.
"""

import json
from collections.abc import Sequence
from typing import Any

from agentr1_tools.calls import ParsedResponse, ToolCall
from agentr1_tools.formats.json_call import read_json_call
from agentr1_tools.formats.literals import read_call
from agentr1_tools.formats.tagged import CLOSE, MAX_CALLS, MAX_CHARS, OPEN, parse_tagged, render_responses
from agentr1_tools.result import ToolResult

_INSTRUCTIONS = """# Tools

You can use tools. Each line between the tags below describes one as JSON:
<tools>
{tools}
</tools>

To use a tool, write its name and its arguments as one JSON object in a block like this, a block for each call:
<tool_call>
{{"name": "the tool's name", "arguments": {{"parameter": "value"}}}}
</tool_call>
What the tool answers comes back between <tool_response> and </tool_response>."""


class HermesFormat:
    """max_chars, max_calls: what is read of one response; more calls are refused with an error."""

    name = "hermes"

    def __init__(self, max_chars: int = MAX_CHARS, max_calls: int = MAX_CALLS) -> None:
        self._max_chars = max_chars
        self._max_calls = max_calls

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """The tools as JSON lines in `<tools>`, and the block a call is written in."""
        return _INSTRUCTIONS.format(tools="\n".join(json.dumps(schema, ensure_ascii=False) for schema in schemas))

    def parse(self, text: str) -> ParsedResponse:
        """Calls as JSON or as `name(...)`; see `parse_tagged` for thinking, limits and errors."""
        return parse_tagged(text, _read, max_chars=self._max_chars, max_calls=self._max_calls)

    def render(self, results: Sequence[tuple[str, ToolResult]]) -> str:
        """One `<tool_response>` a result."""
        return render_responses(results)

    def format_call(self, call: ToolCall) -> str:
        """The call as JSON; positional values have no place in it and are refused with ValueError."""
        if call.positional:
            raise ValueError(
                f"hermes writes arguments by name; give {call.name!r} its {len(call.positional)} values so"
            )
        body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
        return f"{OPEN}\n{body}\n{CLOSE}"


def _read(text: str, position: int) -> tuple[ToolCall, int]:
    if text.startswith("{", position):
        name, arguments, mark, end = read_json_call(text, position)
        return ToolCall(name, arguments, mark), end
    name, positional, named, end = read_call(text, position)
    return ToolCall(name, named, positional=positional), end
