"""Results as JSON, for formats whose models read them so. No mark of a format survives inside a string."""

import json
from collections.abc import Sequence

from agentr1_tools.result import ToolResult

RESULT_START = '{"output": '


def defused_json(value: object) -> str:
    """JSON in which no tag and no list of calls can begin: `<` and `[` of its strings are written as escapes."""
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("[", "\\u005b")


def render_lines(results: Sequence[tuple[str, ToolResult]]) -> str:
    """`{"output": text}` for each result, a line each, in order."""
    return "\n".join(f"{RESULT_START}{defused_json(result.text)}}}" for _, result in results)
