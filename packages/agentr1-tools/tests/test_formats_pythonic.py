import pytest
from agentr1_tools import ToolCall, get_format

PYTHONIC = get_format("pythonic")


def test_it_writes_a_list_of_one():
    call = ToolCall("f", {"b": "x"}, positional=(1,))
    assert PYTHONIC.format_call(call) == '[f(1, b="x")]'
    assert PYTHONIC.parse('[f(1, b="x")]').items == (call,)
    with pytest.raises(ValueError, match="cannot be written as a name"):
        PYTHONIC.format_call(ToolCall("f", {"not a name": 1}))


def test_several_calls_and_the_marks_around_them():
    response = PYTHONIC.parse("so <|python_start|>[ f(a=1), g(b='x', c=[None, True]) , ]<|python_end|> then")
    assert response.items == (ToolCall("f", {"a": 1}), ToolCall("g", {"b": "x", "c": [None, True]}))
    assert response.content.split() == ["so", "then"]


@pytest.mark.parametrize("text", ["[1, 2]", "a[f]", "<answer>[f(2)]</answer>", "f(x) = [x]"])
def test_other_brackets_are_content(text):
    assert (PYTHONIC.parse(text).items, PYTHONIC.parse(text).content) == ((), text)


def test_nothing_is_evaluated():
    response = PYTHONIC.parse("[f(a=__import__('os').system('true'))]")
    assert response.calls == ()
    assert "is no value" in response.errors[0].message
