import re

import pytest
from agentr1_tools import ToolCall, get_format
from agentr1_tools.formats.scan import Scan, behind_broken, kind, marks

MARKS = marks(["<go>"], ["</go>"], answers=True)


def take(scan, mark):
    if kind(mark) == "call":
        scan.items.append(ToolCall("go"))
    return mark.end()


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a<go>b</go>", ["call", "other"]),
        ("<think></think>", ["think", "think"]),
        ("<answer><go></answer>", ["answer", "call"]),
        ("<goes", []),
    ],
)
def test_marks_say_what_they_are(text, kinds):
    assert [kind(mark) for mark in MARKS.finditer(text)] == kinds


def test_an_answer_is_text_and_one_that_is_not_closed_hides_no_call():
    response = Scan("<answer><go></answer>").run(MARKS, take)
    assert (response.items, response.content) == ((), "<answer><go></answer>")
    response = Scan("<answer> soon <go>").run(MARKS, take)
    assert (response.items, response.content) == ((ToolCall("go"),), "<answer> soon")


def test_what_was_searched_for_is_remembered_and_right():
    scan = Scan("b a b a")
    pattern = re.compile("a")
    assert [scan.find("a", place) for place in (0, 1, 2, 3, 6, 7, 0)] == [2, 2, 2, 6, 6, -1, 2]
    assert [match and match.start() for match in (scan.search(pattern, place) for place in (0, 2, 3, 7, 1))] == [
        2,
        2,
        6,
        None,
        2,
    ]
    assert [scan.find("c", place) for place in (3, 5, 0)] == [-1, -1, -1]


def test_a_broken_call_ends_behind_its_closing_text_or_before_the_next_call():
    for text, rest in (("x</go>y", "y"), ("x<go>y", "<go>y"), ("x</think>y", "</think>y"), ("xy", "")):
        assert text[behind_broken(Scan(text), MARKS, 0, "</go>") :] == rest


@pytest.mark.parametrize(
    ("name", "text", "calls", "errors"),
    [
        # behind a broken call whose brackets close, nothing inside it is taken for a call
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"b": [{"name": "h", "arguments": {}}],}}]', [], 1),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": [{"name": "h", "arguments": {}}]}]', [], 1),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {,}}, {"name": "g", "arguments": {}}]', ["g"], 1),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"a": "x}}, {"name": "g", "arguments": {}}]', ["g"], 1),
        ("mistral", '[TOOL_CALLS][{"name": "f"}, 3, {"name": "g"}]', ["f", "g"], 1),
        ("mistral", '[TOOL_CALLS][{"name": "f"}', ["f"], 1),
        ("mistral", '[TOOL_CALLS][{"name": "f"},]', ["f"], 0),
        ("pythonic", "[f(h(1), k(2)), g(3)]", ["g"], 1),
        ("pythonic", '[f(a="x), g(b="y")]', ["g"], 1),
        ("pythonic", "[f(1), g(2)", ["f", "g"], 1),
        ("pythonic", "[f(1) g(2)]", ["f"], 1),
        ("llama3", '{"name": "f", "parameters": {,}}; {"name": "g", "parameters": {}}', ["g"], 1),
        ("llama3", '{"name": "f", "parameters": {"a": "x}\n{"name": "g", "parameters": {}}', ["g"], 1),
        ("llama3", '{"name": "f"}; {"nothing": 1}', ["f"], 1),
    ],
)
def test_a_list_goes_on_behind_a_broken_call(name, text, calls, errors):
    response = get_format(name).parse(text)
    assert [call.name for call in response.calls] == calls
    assert len(response.errors) == errors
    assert get_format(name, max_calls=1).parse(text).items
