import pytest
from agentr1_tools import ToolCall
from agentr1_tools.formats.literals import LiteralError
from agentr1_tools.formats.loose import plain_value, read_plain


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (" x ", ToolCall("f", positional=("x",))),
        ("", ToolCall("f")),
        ("{}", ToolCall("f")),
        ('{"a": 1}', ToolCall("f", {"a": 1})),
        ("null and void", ToolCall("f", positional=("null and void",))),
        ("[1] and [2]", ToolCall("f", positional=("[1] and [2]",))),
    ],
)
def test_text_or_an_object(text, call):
    assert read_plain("f", text) == call


@pytest.mark.parametrize("text", ["null", "[1]", '"{}"', '{"a": 1} x', '{"a"'])
def test_other_json_is_refused(text):
    with pytest.raises(LiteralError):
        read_plain("f", text)


def test_the_text_of_a_call_with_nothing_else():
    assert plain_value(ToolCall("f", positional=("x",))) == "x"
    assert plain_value(ToolCall("f")) == ""
    assert plain_value(ToolCall("f", {"a": 1})) is None
    assert plain_value(ToolCall("f", positional=("x", "y"))) is None
