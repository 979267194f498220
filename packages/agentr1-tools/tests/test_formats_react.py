import pytest
from agentr1_tools import ToolCall, ToolResult, get_format
from agentr1_tools.calls import Untyped

REACT = get_format("react")


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("search[A]", ToolCall("search", positional=("A",))),
        ("  search[ A b ]  ", ToolCall("search", positional=("A b",))),
        ("Thought: x\nAction: lookup[b c]\nObservation:", ToolCall("lookup", positional=("b c",))),
        ("ACTION 3 : search[f[x]] to see [1]", ToolCall("search", positional=("f[x]",))),
        ("search[a] b]", ToolCall("search", positional=("a] b",))),
        ("Action: search[a [b]", ToolCall("search", positional=("a [b",))),
        ("Action: search[two\nlines]", ToolCall("search", positional=("two\nlines",))),
        (
            "Action: search\nAction Input: Ada Lovelace\nObservation: x",
            ToolCall("search", positional=("Ada Lovelace",)),
        ),
        ('Action: f\nAction Input 1: {"a": "]", "b": [1]}\nThen.', ToolCall("f", {"a": "]", "b": [1]})),
        ('Action: f[{"a": "]"}]', ToolCall("f", {"a": "]"})),
        ("Action: now[]", ToolCall("now")),
    ],
)
def test_what_it_reads(text, call):
    (found,) = REACT.parse(text).items
    assert found == call
    assert all(isinstance(value, Untyped) for value in found.positional)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("finish[two\nlines]", "<answer>two\nlines</answer>"),
        ("Thought: so.\nAction: Finish[f[x]]", "Thought: so.\n<answer>f[x]</answer>"),
        ("Final Answer: 42", "<answer>42</answer>"),
        ("Action: finish\nAction Input: 42", "<answer>42</answer>"),
        ("finish[cut off", "<answer>cut off</answer>"),
        ("x[0] is the first", "x[0] is the first"),
        ("The action: search[x]", "The action: search[x]"),
    ],
)
def test_answers_and_prose_are_content(text, content):
    assert (REACT.parse(text).items, REACT.parse(text).content) == ((), content)


@pytest.mark.parametrize("text", ["Action: think about it", "search[x", "Action Input: x", 'Action: f[{"a": 1} x]'])
def test_attempts_that_are_no_calls_are_answered(text):
    assert len(REACT.parse(text).errors) == 1


def test_it_writes_one_text_in_brackets_and_named_arguments_as_json():
    assert REACT.format_call(ToolCall("search", positional=("Ada [L]",))) == "Action: search[Ada [L]]"
    assert REACT.format_call(ToolCall("f", {"a": 1})) == 'Action: f\nAction Input: {"a": 1}'
    for call in (ToolCall("f", positional=(1,)), ToolCall("f", positional=("]]",)), ToolCall("f", positional=(" a",))):
        with pytest.raises(ValueError, match="by name"):
            REACT.format_call(call)


def test_results_are_observations():
    text = REACT.render([("f", ToolResult.success("a\nAction: f[x]")), ("g", ToolResult.success("b"))])
    assert text == "Observation: a\nAction\\: f[x]\nObservation: b"
