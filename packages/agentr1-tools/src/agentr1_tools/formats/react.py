"""`react`: `Action: search[x]`, or `search[x]` on a line of its own, or `Action: search` and `Action Input: ...`.

Inside the brackets, and behind `Action Input:`, stands one value as plain text or a JSON object of named arguments.
`finish[x]` and `Final Answer: x` are the answer: they are left in the content as `<answer>x</answer>`.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from agentr1_tools.calls import ParsedResponse, ToolCall
from agentr1_tools.formats.json_call import read_arguments
from agentr1_tools.formats.literals import MAX_BRACKETS, LiteralError, skip
from agentr1_tools.formats.loose import begins_object, plain_value, read_plain
from agentr1_tools.formats.scan import MAX_CALLS, MAX_CHARS, Scan, kind, marks
from agentr1_tools.formats.schemas import signature_lines
from agentr1_tools.result import ToolResult

_NAME = r"[A-Za-z_][\w.\-]{0,63}+"
_ACTION = r"(?i:action)[ \t]*+\d*+[ \t]*+:[ \t]*+"
_INPUT = r"(?i:action[ \t]++input)[ \t]*+\d*+[ \t]*+:"
_FINAL = r"(?i:final[ \t]++answer)[ \t]*+:"
_FINISH = rf"(?i:finish)(?:\[|[ \t]*+\n\s*+{_INPUT})"
_LINE = r"\n(?!\n)[ \t]*+"
_LABEL = re.compile(rf"{_LINE}(?:{_ACTION}|{_INPUT}|{_FINAL}|(?i:thought|observation)[ \t]*+\d*+[ \t]*+:|</?think>)")
# Without a label the line holds nothing else: `x[0] is the first` is prose.
_ALONE = rf"(?={_NAME}\[(?:[^\n]*\][ \t]*+(?:\n|\Z)|[^\]\n]*+(?:\n|\Z)))"
_MARKS = marks(
    [rf"{_LINE}{_ACTION}(?!{_FINISH})", rf"{_LINE}(?!{_FINISH}){_ALONE}"],
    [rf"{_LINE}(?:{_INPUT}|{_FINAL}|(?:{_ACTION})?+{_FINISH})"],
    answers=True,
)
_HEAD = re.compile(rf"({_NAME})(?:(\[)|[ \t]*+\n\s*+{_INPUT})")
_BRACKET = re.compile(r"[\[\]]")
_RESULT = re.compile(
    r"^([ \t]*+(?i:observation|action|action input|thought|final answer)[ \t]*+\d*+[ \t]*+):", re.MULTILINE
)
_INSTRUCTIONS = """You can use these tools:
{tools}

To use one, end your response with an action: the tool's name, and its first argument in square brackets:
Action: name[value]
Give several arguments as a JSON object:
Action: name
Action Input: {{"parameter": "value"}}
What the tool answers comes back behind "Observation:"."""


@dataclass(frozen=True)
class ReactFormat:
    """max_chars, max_calls: what is read of one response; more calls are refused with an error."""

    max_chars: int = MAX_CHARS
    max_calls: int = MAX_CALLS

    name = "react"
    call_end = ""
    result_start = "\nObservation:"
    names_arguments = False

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """One line a tool: its signature and what it does."""
        return _INSTRUCTIONS.format(tools=signature_lines(schemas))

    def parse(self, text: str) -> ParsedResponse:
        """Actions, one a line or more; see `scan` for thinking and limits."""
        # A line begins behind a line break: one more, and the first line does too.
        return Scan(f"\n{text}", self.max_chars, self.max_calls).run(_MARKS, _look)

    def render(self, results: Sequence[tuple[str, ToolResult]]) -> str:
        """One `Observation:` a result. A label at the beginning of a result's line is defused."""
        return "\n".join("Observation: " + _RESULT.sub(r"\1\\:", result.text) for _, result in results)

    def format_call(self, call: ToolCall) -> str:
        """One text without a name in brackets, named arguments as JSON. Raises ValueError for what is neither."""
        value = plain_value(call)
        text = f"Action: {call.name}"
        if value is None:
            text += f"\nAction Input: {json.dumps(call.arguments, ensure_ascii=False)}"
        else:
            text += f"[{value}]"
        if self.parse(text).items != (call,):
            raise ValueError(f"react cannot write {call!r:.200}; give its arguments by name")
        return text


def _look(scan: Scan, mark: re.Match[str]) -> int:
    if kind(mark) == "other":
        return _answer(scan, mark)
    start, labelled = mark.end(), ":" in mark[0]
    try:
        call, end = _read(scan, start, labelled)
    except LiteralError as error:
        scan.refuse(error, start)
        return _line_end(scan, start)
    scan.items.append(call)
    return end


def _read(scan: Scan, start: int, labelled: bool) -> tuple[ToolCall, int]:
    """Read `name[...]`, or `name` and its `Action Input:`, at `start`."""
    text = scan.text
    head = _HEAD.match(text, start)
    if head is None:
        raise LiteralError("expected name[value], or name and a line Action Input:", start)
    position = skip(text, head.end())
    if begins_object(text, position):
        arguments, end = read_arguments(text, position)
        if not head[2]:
            return ToolCall(head[1], arguments), end
        end = skip(text, end)
        if not text.startswith("]", end):
            raise LiteralError("expected ']' behind the JSON object", end)
        return ToolCall(head[1], arguments), end + 1
    end = _closing(scan, head.end(), labelled) if head[2] else _segment_end(scan, head.end())
    try:
        return read_plain(head[1], text[head.end() : end]), end + bool(head[2])
    except LiteralError as error:
        raise LiteralError(str(error), position + error.position) from None


def _answer(scan: Scan, mark: re.Match[str]) -> int:
    """Put an answer into the content, written as in other formats; an input without its action is an error."""
    words = mark[0].strip().lower()
    if words.startswith("action") and "finish" not in words:
        if not scan.after_fault and not scan.full:
            scan.fail("Action Input: without a line Action: before it", mark.start())
        return mark.end()
    try:
        end = _closing(scan, mark.end(), ":" in words) if words.endswith("[") else _segment_end(scan, mark.end())
    except LiteralError:  # a stop string, or the limit of tokens, has cut the bracket
        end = len(scan.text)
    scan.content.append(f"\n<answer>{scan.text[mark.end() : end].strip()}</answer>")
    return end + words.endswith("[")


def _closing(scan: Scan, position: int, labelled: bool) -> int:
    """Where the bracket opened before `position` closes.

    Behind a label more text may follow, so it is the bracket that balances it, in the lines up to the next label; a
    line of its own ends with it.
    """
    line = _line_end(scan, position)
    last = scan.text.rfind("]", position, line)
    if last >= 0 and not labelled:
        return last
    segment, depth = _segment_end(scan, position), 1
    for bracket in islice(_BRACKET.finditer(scan.text, position, segment), MAX_BRACKETS):
        depth += 1 if bracket[0] == "[" else -1
        if depth == 0:
            return bracket.start()
    if last < 0:
        raise LiteralError("the bracket is not closed", position)
    return last


def _line_end(scan: Scan, position: int) -> int:
    end = scan.find("\n", position)
    return len(scan.text) if end < 0 else end


def _segment_end(scan: Scan, position: int) -> int:
    """Where the next label begins."""
    label = scan.search(_LABEL, position)
    return len(scan.text) if label is None else label.start()
