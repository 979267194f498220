"""`pythonic`: `[f(a=1), g(b="x")]`, a list of calls as Python spells them. Values are literals."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_tools.calls import ParsedResponse, ToolCall
from agentr1_tools.formats.json_results import RESULT_START, render_lines
from agentr1_tools.formats.literals import LiteralError, read_call, skip, write_call
from agentr1_tools.formats.scan import MAX_CALLS, MAX_CHARS, Scan, kind, marks
from agentr1_tools.formats.schemas import signature_lines
from agentr1_tools.result import ToolResult

_BEGINS = r"[A-Za-z_][\w.\-]{0,127}+\s*+\("
_MARKS = marks([rf"\[\s*+{_BEGINS}"], [r"<\|python_(?:start|end)\|>"], answers=True)
_NEXT_CALL = re.compile(rf",\s*+(?={_BEGINS})")
_ON_ITS_LINE = rf"\n[ \t]*+\[\s*+{_BEGINS}"
_NEXT_LIST = re.compile(rf"{_ON_ITS_LINE}|</?think>")
_LIST_IN_A_STRING = re.compile(_ON_ITS_LINE)


@dataclass(frozen=True)
class PythonicFormat:
    """max_chars, max_calls: what is read of one response; more calls are refused with an error."""

    max_chars: int = MAX_CHARS
    max_calls: int = MAX_CALLS

    name = "pythonic"
    call_end = ""
    result_start = RESULT_START
    names_arguments = True

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """One line a tool: its signature and what it does."""
        return (
            f"You can use these functions:\n{signature_lines(schemas)}\n\n"
            'To use some, write a list of calls as in Python and nothing else: [name(key=value), other(key="text")]. '
            'What a function answers comes back as {"output": ...}.'
        )

    def parse(self, text: str) -> ParsedResponse:
        """Lists of calls, wherever they stand outside `<answer>`; see `scan` for thinking and limits."""
        return Scan(text, self.max_chars, self.max_calls).run(_MARKS, _look)

    def render(self, results: Sequence[tuple[str, ToolResult]]) -> str:
        """One line of JSON a result."""
        return render_lines(results)

    def format_call(self, call: ToolCall) -> str:
        """A list of one call, positional values first."""
        return f"[{write_call(call.name, call.positional, call.arguments)}]"


def _look(scan: Scan, mark: re.Match[str]) -> int:
    if kind(mark) == "other":
        return mark.end()
    return scan.read_calls(
        skip(scan.text, mark.start() + 1), _read, separator=",", close="]", next_call=_NEXT_CALL, next_list=_NEXT_LIST
    )


def _read(text: str, position: int) -> tuple[ToolCall, int]:
    name, positional, named, end = read_call(text, position)
    if (other := _LIST_IN_A_STRING.search(text, position, end)) is not None:
        raise LiteralError("a string is not closed before the next list of calls", other.start())
    return ToolCall(name, named, positional=positional), end
