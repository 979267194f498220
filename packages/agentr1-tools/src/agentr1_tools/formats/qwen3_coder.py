"""`qwen3_coder`: `<function=name>` with a `<parameter=key>` for each argument, in a `<tool_call>` tag or without it.

Values are raw text, so strings need no escapes; what is not text is read by the tool's schema (see `Untyped`).
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_tools.calls import ParsedResponse, ToolCall, Untyped
from agentr1_tools.formats.literals import LiteralError, skip
from agentr1_tools.formats.scan import MAX_CALLS, MAX_CHARS, Scan, behind_broken, marks
from agentr1_tools.formats.schemas import json_lines
from agentr1_tools.formats.tagged import CLOSE, OPEN, RESPONSE_OPEN, close_call, render_responses, stray
from agentr1_tools.result import ToolResult

_FUNCTION_CLOSE = "</function>"
_MARKS = marks([rf"{OPEN}(?:\s*+<function=)?+", "<function="], [CLOSE])
_NAME = re.compile(r"([^<>\s]{1,128})>")
_PARAMETER = re.compile(r"<parameter=([^<>\n]{1,128})>")
# A closing tag inside a value is text unless the next parameter or the end of the function follows it.
_VALUE_END = re.compile(r"</parameter>\s*+(?=<parameter=|</function>)")
_NEXT_CALL = re.compile(rf"{OPEN}\s*+<function=")
_INSTRUCTIONS = """# Tools

You can use tools. Each line between the tags below describes one as JSON:
<tools>
{tools}
</tools>

To use a tool, write its name and its arguments in a block like this, a block for each call. Values stand as they are,
without quotes; lists and objects are JSON:
<tool_call>
<function=the tool's name>
<parameter=the parameter's name>
value
</parameter>
</function>
</tool_call>
What the tool answers comes back between <tool_response> and </tool_response>."""


@dataclass(frozen=True)
class Qwen3CoderFormat:
    """max_chars, max_calls: what is read of one response; more calls are refused with an error."""

    max_chars: int = MAX_CHARS
    max_calls: int = MAX_CALLS

    name = "qwen3_coder"
    call_end = CLOSE
    result_start = RESPONSE_OPEN
    names_arguments = True

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """The tools as JSON lines in `<tools>`, and the block a call is written in."""
        return _INSTRUCTIONS.format(tools=json_lines(schemas))

    def parse(self, text: str) -> ParsedResponse:
        """Arguments are `Untyped` texts; see `scan` for thinking and limits."""
        return Scan(text, self.max_chars, self.max_calls).run(_MARKS, _look, _leave_out)

    def render(self, results: Sequence[tuple[str, ToolResult]]) -> str:
        """One `<tool_response>` a result."""
        return render_responses(results)

    def format_call(self, call: ToolCall) -> str:
        """Strings as they are, everything else as JSON. Raises ValueError for what cannot be written so."""
        values = {key: value if isinstance(value, str) else _json(value) for key, value in call.arguments.items()}
        parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
        text = f"{OPEN}\n<function={call.name}>\n{parameters}{_FUNCTION_CLOSE}\n{CLOSE}"
        if self.parse(text).items != (ToolCall(call.name, values),) or call.positional:
            raise ValueError(f"qwen3_coder cannot write {call!r:.200}; values need names, and none of its tags in them")
        return text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _look(scan: Scan, mark: re.Match[str]) -> int:
    if mark[0] == CLOSE:
        return stray(scan, mark, OPEN)
    try:
        call, end = _read(scan, mark.end())
        end = close_call(scan, end) if mark[0].startswith(OPEN) else end
    except LiteralError as error:
        scan.refuse(error, mark.start())
        return behind_broken(scan, _MARKS, mark.end(), CLOSE)
    scan.items.append(call)
    return end


def _read(scan: Scan, position: int) -> tuple[ToolCall, int]:
    """Read what stands behind `<function=`, up to and with `</function>`."""
    text = scan.text
    name = _NAME.match(text, position)
    if name is None or not text.endswith("<function=", 0, position):
        raise LiteralError("expected <function=name>", position)
    arguments: dict[str, Any] = {}
    position = skip(text, name.end())
    while (parameter := _PARAMETER.match(text, position)) is not None:
        key = parameter[1].strip()
        if key in arguments:
            raise LiteralError(f"{key!r} is given twice", position)
        end = scan.search(_VALUE_END, parameter.end())
        if end is None:
            raise LiteralError(f"</parameter> and {_FUNCTION_CLOSE} are missing behind {key!r}", parameter.end())
        value = text[parameter.end() : end.start()]
        if _NEXT_CALL.search(value):
            raise LiteralError(f"</parameter> is missing behind {key!r}", parameter.end())
        arguments[key] = Untyped(_without_line_breaks(value))
        position = end.end()
    if not text.startswith(_FUNCTION_CLOSE, position):
        raise LiteralError(f"expected <parameter=name> or {_FUNCTION_CLOSE}", position)
    return ToolCall(name[1], arguments), position + len(_FUNCTION_CLOSE)


def _without_line_breaks(value: str) -> str:
    """The value without the line break behind its opening tag and the one before its closing tag."""
    value = value.removeprefix("\n")
    return value.removesuffix("\n")


def _leave_out(scan: Scan, mark: re.Match[str]) -> int:
    return behind_broken(scan, _MARKS, mark.end(), CLOSE)
