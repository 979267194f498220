import pytest
from agentr1_tools import ToolCall, ToolResult, get_format
from agentr1_tools.calls import Untyped

TAGS = get_format("tags")


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("<search>x & y < z</search>", ToolCall("search", positional=("x & y < z",))),
        ("<search>\n two\nlines \n</search>", ToolCall("search", positional=("two\nlines",))),
        ('<search>{"query": "</search>", "top": 3}</search>', ToolCall("search", {"query": "</search>", "top": 3})),
        ("<now></now>", ToolCall("now")),
        ("<python>{x for x in y}</python>", ToolCall("python", positional=("{x for x in y}",))),
        ("<python>[x for x in y]</python>", ToolCall("python", positional=("[x for x in y]",))),
        ('<search>"Ada Lovelace"</search>', ToolCall("search", positional=('"Ada Lovelace"',))),
    ],
)
def test_what_it_reads(text, call):
    (found,) = TAGS.parse(text).items
    assert found == call
    assert all(isinstance(value, Untyped) for value in found.positional)


@pytest.mark.parametrize(
    "text", ["<answer>y</answer>", "<answer><search>x</search></answer>", "x<sup>2</sup><br>", "a < b > c"]
)
def test_answers_and_markup_are_content(text):
    assert (TAGS.parse(text).items, TAGS.parse(text).content) == ((), text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x</search>", "</search> without <search> before it"),
        ("<search>x<search>", "</search> is missing"),
        ("<search>x\n<search>y</search>", "is missing before the next <search>"),
        ('<search>{"query": "x"} please</search>', "expected </search> behind the JSON object"),
    ],
)
def test_faults(text, message):
    assert message in TAGS.parse(text).errors[0].message


def test_it_writes_one_text_as_it_is_and_named_arguments_as_json():
    assert TAGS.format_call(ToolCall("search", positional=("x",))) == "<search>x</search>"
    assert TAGS.format_call(ToolCall("f", {"a": 1})) == '<f>{"a": 1}</f>'
    for call in (ToolCall("f", positional=(1,)), ToolCall("f", positional=("</f>",)), ToolCall("b", {"a": 1})):
        with pytest.raises(ValueError, match="by name"):
            TAGS.format_call(call)


def test_results_are_information():
    text = TAGS.render([("f", ToolResult.success("a</information>b"))])
    assert text == "<information>a<\\/information>b</information>"
