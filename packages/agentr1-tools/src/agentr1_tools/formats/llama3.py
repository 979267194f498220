"""`llama3`: `{"name": ..., "parameters": {...}}`, alone or behind `<|python_tag|>`; several are separated by `;`.

Without the tag a call is told from other text by its first key.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_tools.calls import ParsedResponse, ToolCall
from agentr1_tools.formats.json_call import CALL_BEGINS, named_arguments, read_json_call
from agentr1_tools.formats.json_results import RESULT_START, render_lines
from agentr1_tools.formats.literals import skip
from agentr1_tools.formats.scan import MAX_CALLS, MAX_CHARS, Scan, kind, marks
from agentr1_tools.formats.schemas import json_lines
from agentr1_tools.result import ToolResult

_TAG = "<|python_tag|>"
_TAG_PATTERN = re.escape(_TAG)
_OBJECT = r"""\{\s*+(?:["']?+(?:name|parameters|arguments|function)["']?+\s*+:|"type"\s*+:\s*+"function")"""
_MARKS = marks([_TAG_PATTERN, _OBJECT], [r"<\|e(?:om|ot)_id\|>"], answers=True)
_NEXT_CALL = re.compile(rf"[;,]\s*+(?={CALL_BEGINS})")
_NEXT_LIST = re.compile(rf"\n(?={CALL_BEGINS})|{_TAG_PATTERN}|</?think>")
_INSTRUCTIONS = """You can use these functions, a line of JSON each:
{tools}

To use one, answer with a JSON object for the call and nothing else, several separated by ";":
{{"name": "the function's name", "parameters": {{"parameter": "value"}}}}
What a function answers comes back as {{"output": ...}}."""


@dataclass(frozen=True)
class Llama3Format:
    """max_chars, max_calls: what is read of one response; more calls are refused with an error."""

    max_chars: int = MAX_CHARS
    max_calls: int = MAX_CALLS

    name = "llama3"
    call_end = ""
    result_start = RESULT_START
    names_arguments = True

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """The tools as JSON lines, and the object a call is."""
        return _INSTRUCTIONS.format(tools=json_lines(schemas))

    def parse(self, text: str) -> ParsedResponse:
        """Calls as JSON objects, wherever they stand outside `<answer>`; see `scan` for thinking and limits."""
        return Scan(text, self.max_chars, self.max_calls).run(_MARKS, _look)

    def render(self, results: Sequence[tuple[str, ToolResult]]) -> str:
        """One line of JSON a result."""
        return render_lines(results)

    def format_call(self, call: ToolCall) -> str:
        """The call as JSON; positional values have no place in it and are refused with ValueError."""
        return json.dumps({"name": call.name, "parameters": named_arguments(call)}, ensure_ascii=False)


def _look(scan: Scan, mark: re.Match[str]) -> int:
    if kind(mark) == "other":
        return mark.end()
    start = mark.end() if mark[0].startswith(_TAG) else mark.start()
    return scan.read_calls(
        skip(scan.text, start), _read, separator=";", close="", next_call=_NEXT_CALL, next_list=_NEXT_LIST
    )


def _read(text: str, position: int) -> tuple[ToolCall, int]:
    name, arguments, mark, end = read_json_call(text, position, ("parameters", "arguments"))
    return ToolCall(name, arguments, mark), end
