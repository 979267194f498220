"""`harmony`, the form of gpt-oss: `<|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>`.

The channel `analysis` is thinking, `final` and plain `commentary` are content. A call whose `<|call|>` is missing at
the very end is whole: it is the model's token for the end of a turn, and samplers may leave it out.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_tools.calls import ParsedResponse, ToolCall
from agentr1_tools.formats.json_call import named_arguments, read_arguments
from agentr1_tools.formats.literals import LiteralError, skip
from agentr1_tools.formats.scan import MAX_CALLS, MAX_CHARS, Scan, behind_broken, kind, marks
from agentr1_tools.formats.schemas import typescript
from agentr1_tools.formats.tagged import stray
from agentr1_tools.result import ToolResult

_CALL = "<|call|>"
_TO = r"\bto=(?!assistant\b|user\b)"
_MARKS = marks(
    [rf"<\|(?:start|channel)\|>[^<]{{0,200}}?{_TO}[^<]{{0,200}}+(?:<\|channel\|>[^<]{{0,200}}+)?+"],
    [r"<\|(?:start|channel)\|>[^<]{0,200}+", r"<\|(?:end|call|return|message|constrain)\|>"],
)
_RECIPIENT = re.compile(rf"{_TO}(?:functions\.)?([A-Za-z_][\w.\-]{{0,127}})")
_BODY = re.compile(r"\s*+(?:<\|constrain\|>[^<]{0,200}+)?+<\|message\|>\s*+")
_HIDDEN = re.compile(r"<\|channel\|>\s*+analysis\b|<\|start\|>(?!\s*+assistant\b)[^<]*\bto=assistant\b")
_HIDDEN_END = re.compile(r"<\|(?:end|return)\|>|(?=<\|start\|>)")
_INSTRUCTIONS = """# Tools

## functions

namespace functions {{

{tools}

}} // namespace functions

To use one, write a message to it with its arguments as a JSON object:
<|channel|>commentary to=functions.name <|constrain|>json<|message|>{{"parameter": "value"}}<|call|>
What it answers comes back as a message to you."""


@dataclass(frozen=True)
class HarmonyFormat:
    """max_chars, max_calls: what is read of one response; more calls are refused with an error."""

    max_chars: int = MAX_CHARS
    max_calls: int = MAX_CALLS

    name = "harmony"
    call_end = _CALL
    result_start = "<|start|>functions"
    names_arguments = True

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """The tools as TypeScript types, and the message a call is."""
        return _INSTRUCTIONS.format(tools="\n\n".join(typescript(schema) for schema in schemas))

    def parse(self, text: str) -> ParsedResponse:
        """Messages to `functions.name`; see `scan` for `<think>` and limits."""
        return Scan(text, self.max_chars, self.max_calls).run(_MARKS, _look)

    def render(self, results: Sequence[tuple[str, ToolResult]]) -> str:
        """One message to the assistant a result. A token of the format inside a result is defused."""
        return "".join(
            f"<|start|>functions{name and '.'}{name} to=assistant<|channel|>commentary<|message|>"
            f"{result.text.replace('<|', '<' + chr(92) + '|')}<|end|>"
            for name, result in results
        )

    def format_call(self, call: ToolCall) -> str:
        """The call as a message; positional values have no place in it and are refused with ValueError."""
        body = json.dumps(named_arguments(call), ensure_ascii=False)
        return f"<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>{body}{_CALL}"


def _look(scan: Scan, mark: re.Match[str]) -> int:
    if kind(mark) == "call":
        return _call(scan, mark)
    if mark[0] == _CALL:
        return stray(scan, mark, "a message to a function")
    if _HIDDEN.match(mark[0]):
        end = scan.search(_HIDDEN_END, mark.end())
        return len(scan.text) if end is None else end.end()
    return mark.end()


def _call(scan: Scan, mark: re.Match[str]) -> int:
    try:
        call, end = _read(scan.text, mark)
    except LiteralError as error:
        scan.refuse(error, mark.start())
        return behind_broken(scan, _MARKS, mark.end(), _CALL)
    scan.items.append(call)
    return end


def _read(text: str, mark: re.Match[str]) -> tuple[ToolCall, int]:
    name = _RECIPIENT.search(mark[0])
    if name is None:
        raise LiteralError("expected to=functions.name", mark.end())
    body = _BODY.match(text, mark.end())
    if body is None:
        raise LiteralError("expected <|message|> and the arguments", mark.end())
    arguments, end = read_arguments(text, body.end())
    end = skip(text, end)
    if text.startswith(_CALL, end):
        end += len(_CALL)
    elif end < len(text):
        raise LiteralError(f"expected {_CALL} behind the arguments", end)
    return ToolCall(name[1], arguments), end
