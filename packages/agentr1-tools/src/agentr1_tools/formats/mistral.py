"""`mistral`: `[TOOL_CALLS]` before a list of objects, `[{"name": ..., "arguments": {...}}]`, or before each call as
`name[ARGS]{...}`, the newer form."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_tools.calls import ParsedResponse, ToolCall
from agentr1_tools.formats.json_call import CALL_BEGINS, named_arguments, read_arguments, read_json_call
from agentr1_tools.formats.json_results import defused_json
from agentr1_tools.formats.literals import LiteralError, skip
from agentr1_tools.formats.scan import MAX_CALLS, MAX_CHARS, Scan, behind_broken, marks
from agentr1_tools.result import ToolResult

_OPEN = "[TOOL_CALLS]"
_RESULT_OPEN, _RESULT_CLOSE = "[TOOL_RESULTS]", "[/TOOL_RESULTS]"
_MARKS = marks([re.escape(_OPEN)])
_NEXT_CALL = re.compile(rf",\s*+(?={CALL_BEGINS})")
_NEXT_LIST = re.compile(rf"{re.escape(_OPEN)}|</?think>")
_NAMED = re.compile(r"([A-Za-z_][\w.\-]{0,127})\s*+(?:\[CALL_ID\]([^\[\]\s]{0,128}+)\s*+)?+(?:\[ARGS\]\s*+)?+(?=\S)")
_INSTRUCTIONS = """You can use these tools:
[AVAILABLE_TOOLS]{tools}[/AVAILABLE_TOOLS]

To use some, write [TOOL_CALLS] and a JSON list of calls, and nothing after it:
[TOOL_CALLS][{{"name": "the tool's name", "arguments": {{"parameter": "value"}}}}]
What a tool answers comes back between [TOOL_RESULTS] and [/TOOL_RESULTS]."""


@dataclass(frozen=True)
class MistralFormat:
    """max_chars, max_calls: what is read of one response; more calls are refused with an error."""

    max_chars: int = MAX_CHARS
    max_calls: int = MAX_CALLS

    name = "mistral"
    call_end = ""
    result_start = _RESULT_OPEN
    names_arguments = True

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """The tools as a JSON list in `[AVAILABLE_TOOLS]`, and the list of calls."""
        return _INSTRUCTIONS.format(tools=json.dumps(list(schemas), ensure_ascii=False))

    def parse(self, text: str) -> ParsedResponse:
        """Calls as a list or as `name[ARGS]{...}`; see `scan` for thinking and limits."""
        return Scan(text, self.max_chars, self.max_calls).run(_MARKS, _look)

    def render(self, results: Sequence[tuple[str, ToolResult]]) -> str:
        """One `[TOOL_RESULTS]` a result."""
        return "\n".join(
            f'{_RESULT_OPEN}{{"name": {defused_json(name)}, "content": {defused_json(result.text)}}}{_RESULT_CLOSE}'
            for name, result in results
        )

    def format_call(self, call: ToolCall) -> str:
        """The call as a list of one; positional values have no place in it and are refused with ValueError."""
        return _OPEN + json.dumps([{"name": call.name, "arguments": named_arguments(call)}], ensure_ascii=False)


def _look(scan: Scan, mark: re.Match[str]) -> int:
    start = skip(scan.text, mark.end())
    if scan.text.startswith("[", start):
        first = skip(scan.text, start + 1)
        if not scan.text.startswith("]", first):
            return _read_objects(scan, first, ",", "]")
    elif scan.text.startswith("{", start):
        return _read_objects(scan, start, ";", "")
    try:
        call, end = _read_named(scan.text, start)
    except LiteralError as error:
        scan.refuse(error, start)
        return error.position if error.ends_call else behind_broken(scan, _MARKS, start, "")
    scan.items.append(call)
    return end


def _read_objects(scan: Scan, start: int, separator: str, close: str) -> int:
    return scan.read_calls(
        start, _read_object, separator=separator, close=close, next_call=_NEXT_CALL, next_list=_NEXT_LIST
    )


def _read_object(text: str, position: int) -> tuple[ToolCall, int]:
    name, arguments, mark, end = read_json_call(text, position)
    return ToolCall(name, arguments, mark), end


def _read_named(text: str, position: int) -> tuple[ToolCall, int]:
    name = _NAMED.match(text, position)
    if name is None:
        raise LiteralError('expected [{"name": ..., "arguments": {...}}] or name[ARGS]{...}', position)
    arguments, end = read_arguments(text, name.end())
    return ToolCall(name[1], arguments, name[2] or ""), end
