"""`tags`: `<search>x</search>`, a tag named as the tool, and `<answer>y</answer>`, which is left in the content.

Inside the tag stands one value as plain text, or a JSON object of named arguments.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_tools.calls import ParsedResponse, ToolCall
from agentr1_tools.formats.json_call import read_arguments
from agentr1_tools.formats.literals import LiteralError, skip
from agentr1_tools.formats.loose import begins_object, plain_value, read_plain
from agentr1_tools.formats.scan import MAX_CALLS, MAX_CHARS, Scan, behind_broken, kind, marks
from agentr1_tools.formats.schemas import signature_lines
from agentr1_tools.formats.tagged import stray
from agentr1_tools.result import ToolResult

_RESULT_OPEN, _RESULT_CLOSE = "<information>", "</information>"
# Tags that are no calls: the format's own, and the markup that models put into an answer.
_OTHERS = (
    "think|answer|information|a|b|i|u|s|p|br|hr|em|strong|code|pre|sub|sup|ul|ol|li|table|thead|tbody|tr|td|th|div|span"
    "|h[1-6]|img|html|body|blockquote|details|summary"
)
_NAME = rf"(?!(?:{_OTHERS})>)[a-z_][a-z0-9_]{{0,63}}+"
_MARKS = marks([f"<{_NAME}>"], [f"</{_NAME}>"], answers=True)


@dataclass(frozen=True)
class TagsFormat:
    """max_chars, max_calls: what is read of one response; more calls are refused with an error."""

    max_chars: int = MAX_CHARS
    max_calls: int = MAX_CALLS

    name = "tags"
    call_end = ""
    result_start = _RESULT_OPEN
    names_arguments = False

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """One line a tool: its signature and what it does."""
        names = [schema["function"]["name"] for schema in schemas]
        tool = names[0] if names else "tool"
        return (
            f"You can use these tools:\n{signature_lines(schemas)}\n\n"
            f"To use one, write its first argument in a tag with its name: <{tool}>...</{tool}>. Several arguments are "
            f'written as a JSON object: <{tool}>{{"parameter": "value"}}</{tool}>. '
            f"What it answers comes back between {_RESULT_OPEN} and {_RESULT_CLOSE}."
        )

    def parse(self, text: str) -> ParsedResponse:
        """Every tag but HTML's and the format's own is a call; see `scan` for thinking and limits."""
        return Scan(text, self.max_chars, self.max_calls).run(_MARKS, _look, _leave_out)

    def render(self, results: Sequence[tuple[str, ToolResult]]) -> str:
        """One `<information>` a result. A closing tag inside a result is defused."""
        texts = (result.text.replace(_RESULT_CLOSE, "<\\/information>") for _, result in results)
        return "\n".join(f"{_RESULT_OPEN}{text}{_RESULT_CLOSE}" for text in texts)

    def format_call(self, call: ToolCall) -> str:
        """One text without a name as it is, named arguments as JSON. Raises ValueError for what is neither."""
        value = plain_value(call)
        body = json.dumps(call.arguments, ensure_ascii=False) if value is None else value
        text = f"<{call.name}>{body}</{call.name}>"
        if self.parse(text).items != (call,):
            raise ValueError(f"tags cannot write {call!r:.200}; give its arguments by name")
        return text


def _look(scan: Scan, mark: re.Match[str]) -> int:
    if kind(mark) == "other":
        return stray(scan, mark, f"<{mark[0][2:]}")
    try:
        call, end = _read(scan, mark)
    except LiteralError as error:
        scan.refuse(error, mark.end())
        return behind_broken(scan, _MARKS, mark.end(), f"</{mark[0][1:]}")
    scan.items.append(call)
    return end


def _read(scan: Scan, mark: re.Match[str]) -> tuple[ToolCall, int]:
    """Read the call whose tag is `mark`; a closing tag inside a JSON string is only text."""
    text, name = scan.text, mark[0][1:-1]
    close, start = f"</{name}>", skip(scan.text, mark.end())
    if begins_object(text, start):
        arguments, end = read_arguments(text, start)
        end = skip(text, end)
        if not text.startswith(close, end):
            raise LiteralError(f"expected {close} behind the JSON object", end)
        return ToolCall(name, arguments), end + len(close)
    end = scan.find(close, start)
    if end < 0:
        raise LiteralError(f"{close} is missing", start)
    if scan.find(mark[0], start) in range(start, end):
        raise LiteralError(f"{close} is missing before the next {mark[0]}", start)
    try:
        return read_plain(name, text[start:end]), end + len(close)
    except LiteralError as error:
        raise LiteralError(str(error), start + error.position) from None


def _leave_out(scan: Scan, mark: re.Match[str]) -> int:
    """Where a call that was left out ends: behind its closing tag, or else behind its opening one."""
    close = f"</{mark[0][1:]}"
    end = scan.find(close, mark.end())
    return mark.end() if end < 0 else end + len(close)
