import pytest
from agentr1_tools import ToolCall, get_format
from agentr1_tools.calls import Untyped

QWEN = get_format("qwen3_coder")


def test_it_writes_values_as_they_are():
    assert QWEN.format_call(ToolCall("f", {"a": 'say "x"', "b": [1, None]})) == (
        '<tool_call>\n<function=f>\n<parameter=a>\nsay "x"\n</parameter>\n'
        "<parameter=b>\n[1, null]\n</parameter>\n</function>\n</tool_call>"
    )


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("<tool_call><function=f></function></tool_call>", {}),
        ("<function=f><parameter=a>x</parameter></function>", {"a": "x"}),
        (
            "<tool_call>\n<function=f>\n<parameter= a >\n\nx \n\n</parameter>\n</function>\n</tool_call>",
            {"a": "\nx \n"},
        ),
        ("<function=f><parameter=a></parameter> in it</parameter>\n</function>", {"a": "</parameter> in it"}),
        ("<function=f><parameter=a>if a < b:\n  <b></parameter></function>", {"a": "if a < b:\n  <b>"}),
    ],
)
def test_what_it_reads(text, arguments):
    (call,) = QWEN.parse(text).items
    assert call == ToolCall("f", arguments)
    assert all(isinstance(value, Untyped) for value in call.arguments.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<tool_call>{}</tool_call>", "expected <function=name>"),
        ("<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>", "'a' is given twice"),
        ("</tool_call>", "without <tool_call> before it"),
        ("<tool_call><function=f></function>", "</tool_call> is missing"),
    ],
)
def test_faults(text, message):
    (error,) = QWEN.parse(text).errors
    assert message in error.message


def test_a_value_that_is_not_closed_does_not_swallow_the_next_call():
    good = QWEN.format_call(ToolCall("g", {"a": "x"}))
    response = QWEN.parse(f"<tool_call>\n<function=f>\n<parameter=a>\nx\n{good}")
    assert response.calls == (ToolCall("g", {"a": "x"}),)
    assert "</parameter> is missing" in response.errors[0].message


@pytest.mark.parametrize(
    "call", [ToolCall("f", positional=("x",)), ToolCall("f", {"a": "</parameter></function>"}), ToolCall("f>", {})]
)
def test_what_cannot_be_written_is_refused(call):
    with pytest.raises(ValueError, match="cannot write"):
        QWEN.format_call(call)
