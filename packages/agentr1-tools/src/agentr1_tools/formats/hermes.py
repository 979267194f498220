"""`hermes`: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, the form of Hermes and Qwen models.

It also takes `name("positional", key=value)` in the same tag, which is the form `call` writes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_tools.calls import ParsedResponse, ToolCall
from agentr1_tools.formats.json_call import named_arguments, read_json_call
from agentr1_tools.formats.literals import read_call
from agentr1_tools.formats.scan import MAX_CALLS, MAX_CHARS
from agentr1_tools.formats.schemas import json_lines
from agentr1_tools.formats.tagged import CLOSE, OPEN, RESPONSE_OPEN, parse_tagged, render_responses
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


@dataclass(frozen=True)
class HermesFormat:
    """max_chars, max_calls: what is read of one response; more calls are refused with an error."""

    max_chars: int = MAX_CHARS
    max_calls: int = MAX_CALLS

    name = "hermes"
    call_end = CLOSE
    result_start = RESPONSE_OPEN
    names_arguments = True

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """The tools as JSON lines in `<tools>`, and the block a call is written in."""
        return _INSTRUCTIONS.format(tools=json_lines(schemas))

    def parse(self, text: str) -> ParsedResponse:
        """Calls as JSON or as `name(...)`; see `scan` for thinking and limits."""
        return parse_tagged(text, _read, max_chars=self.max_chars, max_calls=self.max_calls)

    def render(self, results: Sequence[tuple[str, ToolResult]]) -> str:
        """One `<tool_response>` a result."""
        return render_responses(results)

    def format_call(self, call: ToolCall) -> str:
        """The call as JSON; positional values have no place in it and are refused with ValueError."""
        body = json.dumps({"name": call.name, "arguments": named_arguments(call)}, ensure_ascii=False)
        return f"{OPEN}\n{body}\n{CLOSE}"


def _read(text: str, position: int) -> tuple[ToolCall, int]:
    if text.startswith("{", position):
        name, arguments, mark, end = read_json_call(text, position)
        return ToolCall(name, arguments, mark), end
    name, positional, named, end = read_call(text, position)
    return ToolCall(name, named, positional=positional), end
