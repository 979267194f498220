"""The `<tool_call>` tag and the `<tool_response>` tag, which several formats share.

What stands inside a tag is read by a reader that knows strings, so a tag inside a string is only text. A call that
cannot be read becomes an error, and the scan goes on behind it.
"""

import re
from collections.abc import Sequence

from agentr1_tools.calls import ParsedResponse
from agentr1_tools.formats.literals import LiteralError, skip
from agentr1_tools.formats.scan import MAX_CALLS, MAX_CHARS, CallReader, Scan, behind_broken, marks
from agentr1_tools.result import ToolResult

OPEN, CLOSE = "<tool_call>", "</tool_call>"
RESPONSE_OPEN, RESPONSE_CLOSE = "<tool_response>", "</tool_response>"

_MARKS = marks([OPEN], [CLOSE])


def parse_tagged(
    text: str, read: CallReader, *, max_chars: int = MAX_CHARS, max_calls: int = MAX_CALLS
) -> ParsedResponse:
    """Take a response apart. `read(text, position)` reads one call and says where it ends, or raises LiteralError."""

    def look(scan: Scan, mark: re.Match[str]) -> int:
        return _call(scan, mark.end(), read) if mark[0] == OPEN else stray(scan, mark, OPEN)

    return Scan(text, max_chars, max_calls).run(_MARKS, look, _leave_out)


def close_call(scan: Scan, position: int) -> int:
    """The position behind the closing tag. Raises LiteralError when the call is not followed by one."""
    end = skip(scan.text, position)
    if scan.text.startswith(CLOSE, end):
        return end + len(CLOSE)
    rest = scan.text[end : end + 20].partition("<")[0].strip()
    problem = f"unexpected {rest!r} after the call; close it with {CLOSE}" if rest else f"{CLOSE} is missing"
    raise LiteralError(problem, end)


def stray(scan: Scan, mark: re.Match[str], opening: str) -> int:
    """Record a closing text without an opening one, unless it belongs to the call that could not be read before it."""
    if not scan.after_fault and not scan.full:
        scan.fail(f"{mark[0]} without {opening} before it", mark.start())
    return mark.end()


def _call(scan: Scan, start: int, read: CallReader) -> int:
    """Read the call whose tag ended at `start`; return where the scan goes on."""
    try:
        call, end = read(scan.text, skip(scan.text, start))
        end = close_call(scan, end)
    except LiteralError as error:
        scan.refuse(error, start)
        return behind_broken(scan, _MARKS, start, CLOSE)
    scan.items.append(call)
    return end


def _leave_out(scan: Scan, mark: re.Match[str]) -> int:
    return behind_broken(scan, _MARKS, mark.end(), CLOSE)


def render_responses(results: Sequence[tuple[str, ToolResult]]) -> str:
    """`<tool_response>` for each result, in order. A closing tag inside a result is defused."""
    texts = (result.text.replace(RESPONSE_CLOSE, "<\\/tool_response>") for _, result in results)
    return "\n".join(f"{RESPONSE_OPEN}\n{text}\n{RESPONSE_CLOSE}" for text in texts)
