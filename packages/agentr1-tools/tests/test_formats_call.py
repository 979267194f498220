import pytest
from agentr1_tools import ToolCall, ToolFormat, get_format, load_tool
from agentr1_tools.formats.call import CallFormat

CALL = CallFormat()


def test_it_is_a_tool_format():
    assert isinstance(get_format("call"), ToolFormat)


def test_the_instructions_name_every_tool_with_its_signature():
    text = CALL.instructions([load_tool("calculator").schema, load_tool("wiki_search").schema])
    assert "- calculator(expression): Evaluate" in text
    assert "- wiki_search(query, max_results=5): Search" in text


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("now"),
        ToolCall("wiki_search", positional=("Einstein </tool_call>",)),
        ToolCall("f", {"a": [1, {"b": None}], "c": 'it\'s "so"\n\\'}, positional=(True, -2.5)),
    ],
)
def test_what_it_writes_it_reads(call):
    assert CALL.parse(CALL.format_call(call)).items == (call,)


def test_it_writes_the_short_form():
    assert CALL.format_call(ToolCall("wiki_search", {"max_results": 3}, positional=("Einstein",))) == (
        '<tool_call>wiki_search("Einstein", max_results=3)</tool_call>'
    )


def test_json_in_the_tag_is_an_error():
    response = CALL.parse('<tool_call>{"name": "f", "arguments": {}}</tool_call>')
    assert response.calls == ()
    assert "expected a tool's name" in response.errors[0].message
