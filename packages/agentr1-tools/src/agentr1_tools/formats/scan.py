"""The scan all formats share: thinking, answers, calls and the text around them, in one pass.

A format says what its marks look like and reads what stands behind one; here is what all have in common. Characters
and calls are bounded before anything is read, what was searched for in vain is not searched for again, and text is read
again after a fault only within a bound, so time is linear in the text.
"""

import re
from collections.abc import Callable, Sequence

from agentr1_tools.calls import CallError, ParsedResponse, ToolCall
from agentr1_tools.errors import ErrorCode
from agentr1_tools.formats.literals import LiteralError, behind_brackets, skip

MAX_CHARS = 1_000_000
MAX_CALLS = 32
MAX_MARKS = 10_000

_RAW_CHARS = 200
_ALWAYS_READ_AGAIN = 100_000  # characters
_LONGEST_MARK = 512

CallReader = Callable[[str, int], tuple[ToolCall, int]]
"""Reads one call at a position and says where it ends, or raises LiteralError."""

MarkReader = Callable[["Scan", re.Match[str]], int]
"""Takes in what stands at a mark and says where the scan goes on."""


def marks(call: Sequence[str], other: Sequence[str] = (), *, answers: bool = False) -> re.Pattern[str]:
    """A pattern of all that a scan stops at; `kind` tells which it is.

    call: what begins a call. other: what else the format wants to look at. answers: what stands between `<answer>` and
    `</answer>` is text, for formats whose calls could be taken for it.
    """
    kinds = {"think": ["</?think>"], "answer": ["<answer>"] if answers else [], "call": call, "other": other}
    # An empty group behind each alternative names it. Before it, the group would hide the first character, by which
    # the search passes over plain text fast.
    named = [f"{one}(?P<{kind}{place}>)" for kind, parts in kinds.items() for place, one in enumerate(parts)]
    return re.compile("|".join(named))


def kind(mark: re.Match[str]) -> str:
    """`think`, `answer`, `call` or `other`."""
    return (mark.lastgroup or "").rstrip("0123456789")


class Scan:
    """One pass over one response. Readers add to `items`; `content` is the text around them."""

    def __init__(self, text: str, max_chars: int = MAX_CHARS, max_calls: int = MAX_CALLS) -> None:
        self.text = text[:max_chars]
        self.items: list[ToolCall | CallError] = []
        self.content: list[str] = []
        self.left_out = 0
        self._whole, self._max_chars, self._max_calls = text, max_chars, max_calls
        self._found: dict[str, tuple[int, int]] = {}
        self._matched: dict[re.Pattern[str], tuple[int, re.Match[str] | None]] = {}
        self._read_in_vain = 0

    def run(
        self, marks: re.Pattern[str], read: MarkReader, leave_out: MarkReader = lambda _, mark: mark.end()
    ) -> ParsedResponse:
        """Go through the text. `leave_out` passes over a call that is one too many."""
        position, thought, seen = 0, False, 0
        while (mark := marks.search(self.text, position)) is not None:
            if (seen := seen + 1) > MAX_MARKS:  # not even where its thinking ends is known: none of its calls is run
                self.items.clear()
                self.fail(f"more than {MAX_MARKS} tags in one response; write only what is needed", 0)
                break
            self.content.append(self.text[position : mark.start()])
            what = kind(mark)
            if what == "think":
                position, thought = self._think(mark, thought), True
            elif what == "answer":
                position = self._answer(mark)
            elif what == "call" and self.full:
                self.left_out += 1
                position = leave_out(self, mark)
            else:
                position = read(self, mark)
        self.content.append(self.text[position:])
        self._report_what_was_not_read(marks)
        return ParsedResponse("".join(self.content).strip(), tuple(self.items))

    @property
    def full(self) -> bool:
        """True when no more calls are taken."""
        return len(self.items) >= self._max_calls

    @property
    def after_fault(self) -> bool:
        """True when the last thing taken in was a call that could not be read."""
        return bool(self.items) and isinstance(self.items[-1], CallError)

    @property
    def _patient(self) -> bool:
        """False when so much was read in vain that broken text is not read again."""
        return self._read_in_vain <= max(_ALWAYS_READ_AGAIN, len(self.text))

    def fail(self, problem: str, start: int) -> None:
        """Record a call that could not be read; `start` is where it begins."""
        self.items.append(CallError(str(ErrorCode.PARSE_ERROR), problem, self._whole[start : start + _RAW_CHARS]))

    def refuse(self, error: LiteralError, start: int) -> None:
        """Record a call whose reader gave up."""
        self.fail(f"{error} (character {error.position - start} of the call)", start)
        self._read_in_vain += max(error.position - start, 0)

    def find(self, needle: str, position: int) -> int:
        """`str.find`, which does not search again for what it found, or did not find, farther on."""
        since, found = self._found.get(needle, (len(self.text) + 1, -1))
        if since > position or -1 < found < position:
            found = self.text.find(needle, position)
            self._found[needle] = (position, found)
        return found

    def search(self, pattern: re.Pattern[str], position: int) -> re.Match[str] | None:
        """`pattern.search`, which does not search again for what it found, or did not find, farther on."""
        since, match = self._matched.get(pattern, (len(self.text) + 1, None))
        if since > position or (match is not None and match.start() < position):
            match = pattern.search(self.text, position)
            self._matched[pattern] = (position, match)
        return match

    def read_calls(
        self,
        start: int,
        read: CallReader,
        *,
        separator: str,
        close: str,
        next_call: re.Pattern[str],
        next_list: re.Pattern[str],
    ) -> int:
        """Read calls one behind another; return where the scan goes on.

        separator: what stands between two. close: what must stand behind the last; empty where nothing must.
        next_call: what stands before a call of the same list, to find one again in broken text. next_list: where,
        whatever was broken before, something else begins.
        """
        position = start
        while not self.full:
            position, at_call = self._read_one(position, read, next_call, next_list)
            if at_call:
                continue
            begin, position = position, skip(self.text, position)
            if self.text.startswith(separator, position):
                position = skip(self.text, position + len(separator))
            elif not close:
                return begin
            elif not self.text.startswith(close, position):
                if not self.after_fault:
                    self.fail(f"expected {separator!r} or {close!r} after the call", position)
                return begin
            if close and self.text.startswith(close, position):
                return position + len(close)
            if not close and not self.text.startswith("{", position):
                return position
        return self._leave_out_all(position, next_call, next_list)

    def _read_one(
        self, start: int, read: CallReader, next_call: re.Pattern[str], next_list: re.Pattern[str]
    ) -> tuple[int, bool]:
        """Where the reading goes on, and whether a call begins there for sure."""
        try:
            call, end = read(self.text, start)
        except LiteralError as error:
            self.refuse(error, start)
            return self._resume(start, error, next_call, next_list)
        self.items.append(call)
        return end, False

    def _resume(
        self, start: int, error: LiteralError, next_call: re.Pattern[str], next_list: re.Pattern[str]
    ) -> tuple[int, bool]:
        """Behind the brackets of the broken call if they close, else at the next call, but never past another list."""
        if error.ends_call:
            return error.position, False
        other = self.search(next_list, start + 1)
        limit = len(self.text) if other is None else other.start()
        if self._patient:
            end, closed = behind_brackets(self.text, start)
            self._read_in_vain += end - start
            if closed and end <= limit:
                return end, False
        call = self.search(next_call, start + 1 if self._patient else max(error.position, start + 1))
        return (limit, False) if call is None or call.start() >= limit else (call.end(), True)

    def _leave_out_all(self, position: int, next_call: re.Pattern[str], next_list: re.Pattern[str]) -> int:
        other = self.search(next_list, position)
        limit = len(self.text) if other is None else other.start()
        while True:
            self.left_out += 1
            call = self.search(next_call, position + 1)
            if call is None or call.start() >= limit:
                return limit
            position = call.end()

    def _think(self, mark: re.Match[str], thought: bool) -> int:
        if mark[0] == "<think>":
            end = self.find("</think>", mark.end())
            return len(self.text) if end < 0 else end + len("</think>")
        if not thought:  # the prompt had opened it: what came before was thinking
            self.items.clear()
            self.content.clear()
            self.left_out = 0
        return mark.end()

    def _answer(self, mark: re.Match[str]) -> int:
        end = self.find("</answer>", mark.end())
        end = mark.end() if end < 0 else end + len("</answer>")
        self.content.append(self.text[mark.start() : end])
        return end

    def _report_what_was_not_read(self, marks: re.Pattern[str]) -> None:
        limit = self._max_chars
        if len(self._whole) > limit:
            behind = marks.finditer(self._whole, max(limit - _LONGEST_MARK, 0))
            if any(kind(mark) == "call" and mark.end() > limit for mark in behind):
                problem = f"the response is longer than {limit} characters; calls after that are not read"
                self.fail(problem, limit)
        if self.left_out:
            problem = f"{self.left_out} more calls were not run; make at most {self._max_calls} calls in one response"
            self.fail(problem, len(self._whole))


def behind_broken(scan: Scan, marks: re.Pattern[str], start: int, close: str) -> int:
    """Where a call that could not be read ends: behind its closing text, or before the next call."""
    for _ in range(MAX_MARKS):
        mark = scan.search(marks, start)
        if mark is None:
            break
        if mark[0] == close:
            return mark.end()
        if kind(mark) == "call" or mark[0] == "</think>":
            return mark.start()
        start = mark.end()
    return len(scan.text)
