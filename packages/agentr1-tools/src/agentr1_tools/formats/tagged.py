"""The scan both tag formats share: thinking, `<tool_call>` tags and the text around them, in one pass.

What stands inside a tag is read by a reader that knows strings, so a tag inside a string is only text. A call that
cannot be read becomes an error, and the scan goes on behind it. Time is linear in the text, and the text is bounded
first.
"""

import re
from collections.abc import Callable, Sequence

from agentr1_tools.calls import CallError, ParsedResponse, ToolCall
from agentr1_tools.errors import ErrorCode
from agentr1_tools.formats.literals import LiteralError
from agentr1_tools.result import ToolResult

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MAX_CHARS = 1_000_000
MAX_CALLS = 32

_MARK = re.compile(r"<think>|</think>|<tool_call>|</tool_call>")
_SPACE = re.compile(r"\s*")
_RAW_CHARS = 200

CallReader = Callable[[str, int], tuple[ToolCall, int]]


def parse_tagged(
    text: str, read: CallReader, *, max_chars: int = MAX_CHARS, max_calls: int = MAX_CALLS
) -> ParsedResponse:
    """Take a response apart. `read(text, position)` reads one call and says where it ends, or raises LiteralError."""
    scan = _Scan(text[:max_chars], read, max_calls)
    scan.run()
    if len(text) > max_chars and text.find(OPEN, max_chars - len(OPEN)) >= 0:
        scan.fail(f"the response is longer than {max_chars} characters; calls after that are not read", max_chars)
    if scan.left_out:
        scan.fail(f"{scan.left_out} more calls were not run; make at most {max_calls} calls in one response", len(text))
    return ParsedResponse("".join(scan.content).strip(), tuple(scan.items))


class _Scan:
    """One pass over one text. `items` and `content` grow as it goes."""

    def __init__(self, text: str, read: CallReader, max_calls: int) -> None:
        self.text = text
        self.items: list[ToolCall | CallError] = []
        self.content: list[str] = []
        self.left_out = 0
        self._read = read
        self._max_calls = max_calls

    def run(self) -> None:
        position, thought = 0, False
        while (mark := _MARK.search(self.text, position)) is not None:
            self.content.append(self.text[position : mark.start()])
            position = mark.end()
            if mark[0] == "<think>":
                end = self.text.find("</think>", position)
                position = len(self.text) if end < 0 else end + len("</think>")
                thought = True
            elif mark[0] == "</think>":
                if not thought:  # the prompt had opened it: what came before was thinking
                    self.items.clear()
                    self.content.clear()
                    self.left_out = 0
                thought = True
            elif mark[0] == OPEN:
                position = self._call(position)
            elif not (self.items and isinstance(self.items[-1], CallError)):
                self.fail(f"{CLOSE} without {OPEN} before it", mark.start())
        self.content.append(self.text[position:])

    def _call(self, start: int) -> int:
        """Read the call whose tag ended at `start`; return where the scan goes on."""
        if len(self.items) >= self._max_calls:
            self.left_out += 1
            return self._behind(start)
        try:
            call, end = self._read(self.text, _skip(self.text, start))
        except LiteralError as error:
            self.fail(f"{error} (character {error.position - start} of the call)", start)
            return self._behind(start)
        end = _skip(self.text, end)
        if not self.text.startswith(CLOSE, end):
            rest = self.text[end : end + 20].partition("<")[0].strip()
            problem = f"unexpected {rest!r} after the call; close it with {CLOSE}" if rest else f"{CLOSE} is missing"
            self.fail(problem, start)
            return self._behind(start)
        self.items.append(call)
        return end + len(CLOSE)

    def _behind(self, start: int) -> int:
        """Where a call that could not be read ends: behind its closing tag, or before the next opening one."""
        while (mark := _MARK.search(self.text, start)) is not None:
            if mark[0] == CLOSE:
                return mark.end()
            if mark[0] == OPEN:
                return mark.start()
            start = mark.end()
        return len(self.text)

    def fail(self, problem: str, start: int) -> None:
        """Record a call that could not be read."""
        self.items.append(CallError(str(ErrorCode.PARSE_ERROR), problem, self.text[start : start + _RAW_CHARS]))


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def render_responses(results: Sequence[tuple[str, ToolResult]]) -> str:
    """`<tool_response>` for each result, in order. A closing tag inside a result is defused."""
    texts = (result.text.replace("</tool_response>", "<\\/tool_response>") for _, result in results)
    return "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts)
