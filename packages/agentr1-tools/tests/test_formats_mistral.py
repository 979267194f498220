import json

import pytest
from agentr1_tools import ToolCall, ToolResult, get_format

MISTRAL = get_format("mistral")


def test_it_writes_the_list():
    assert MISTRAL.format_call(ToolCall("f", {"a": 1})) == '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]'
    with pytest.raises(ValueError, match="by name"):
        MISTRAL.format_call(ToolCall("f", positional=(1,)))


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}, "id": "x1"}]', [ToolCall("f", {"a": 1}, "x1")]),
        ('[TOOL_CALLS][{"name": "f"}, {"name": "g"}]', [ToolCall("f"), ToolCall("g")]),
        ('[TOOL_CALLS]{"name": "f", "arguments": {}}', [ToolCall("f")]),
        ('[TOOL_CALLS]f[ARGS]{"a": "]"}', [ToolCall("f", {"a": "]"})]),
        ('[TOOL_CALLS]f[CALL_ID]x1[ARGS]{"a": 1}', [ToolCall("f", {"a": 1}, "x1")]),
        ('[TOOL_CALLS]f{"a": 1}[TOOL_CALLS]g[ARGS]{}', [ToolCall("f", {"a": 1}), ToolCall("g")]),
    ],
)
def test_what_it_reads(text, calls):
    assert list(MISTRAL.parse(text).items) == calls


@pytest.mark.parametrize(
    "text", ["[TOOL_CALLS]", "[TOOL_CALLS][]", "[TOOL_CALLS]f", "[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS]5"]
)
def test_attempts_that_are_no_calls_are_answered(text):
    assert len(MISTRAL.parse(text).errors) == 1


def test_results_are_json_between_marks():
    text = MISTRAL.render([("f", ToolResult.success("[/TOOL_RESULTS]<x>"))])
    body = text.removeprefix("[TOOL_RESULTS]").removesuffix("[/TOOL_RESULTS]")
    assert json.loads(body) == {"name": "f", "content": "[/TOOL_RESULTS]<x>"}
