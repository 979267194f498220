import time

import pytest
from agentr1_tools import ToolCall, ToolResult
from agentr1_tools.formats.hermes import HermesFormat
from agentr1_tools.formats.tagged import render_responses

GOOD = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
CALL = ToolCall("f", {"a": 1})


def parse(text, **limits):
    return HermesFormat(**limits).parse(text)


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("", "", ()),
        ("just an answer", "just an answer", ()),
        (f"before {GOOD} after", "before  after", (CALL,)),
        (f"{GOOD}{GOOD}", "", (CALL, CALL)),
        (f"<think>maybe {GOOD}</think>answer", "answer", ()),
        (f"<think>maybe {GOOD}</think>{GOOD}", "", (CALL,)),
        (f"<think>never closed {GOOD}", "", ()),
        (f"a <think>b</think> c <think>d</think> e{GOOD}", "a  c  e", (CALL,)),
        (f"opened by the prompt {GOOD}</think>answer {GOOD}", "answer", (CALL,)),
        (f"<think>a</think>b</think>{GOOD}", "b", (CALL,)),
        ('<tool_call>{"name": "f", "arguments": {"a": "<think>"}}</tool_call>', "", (ToolCall("f", {"a": "<think>"}),)),
        (
            '<tool_call>{"name": "f", "arguments": {"a": "</tool_call><tool_call>{"}}</tool_call>',
            "",
            (ToolCall("f", {"a": "</tool_call><tool_call>{"}),),
        ),
        ("<tool_call>f('</tool_call>')</tool_call>", "", (ToolCall("f", positional=("</tool_call>",)),)),
        (f"日本 {GOOD} 🎉", "日本  🎉", (CALL,)),
        ("\n<tool_call>\n\n" + '{"name": "f", "arguments": {"a": 1}}' + "\n \n</tool_call>\n", "", (CALL,)),
    ],
)
def test_what_is_no_fault(text, content, calls):
    response = parse(text)
    assert response.errors == ()
    assert response.calls == calls
    assert response.content == content


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<tool_call>{"name": "f", "arguments": {"a": 1}}', "</tool_call> is missing"),
        ('<tool_call>{"name": "f", "arguments": {"a": 1', "broken JSON"),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}}}</tool_call>', "unexpected '}' after the call"),
        ("<tool_call>", "expected a tool's name"),
        ("<tool_call></tool_call>", "expected a tool's name"),
        ("<tool_call>search the web</tool_call>", "expected '('"),
        ("<tool_call>[1, 2]</tool_call>", "expected a tool's name"),
        ('{"name": "f", "arguments": {}}</tool_call>', "without <tool_call> before it"),
        ('<tool_call>{"name": "f", "arguments": "{}"}</tool_call>', "is a string"),
        ('<tool_call>{"name": "f", "arguments": []}</tool_call>', "is a list"),
        ('<tool_call>{"name": "f", "arguments": null}</tool_call>', "is null"),
        ("<tool_call>{'name': 'f', 'arguments': {}}</tool_call>", "broken JSON"),
    ],
)
@pytest.mark.parametrize("behind", ["", GOOD])
def test_a_fault_is_one_error_and_calls_behind_it_still_run(text, message, behind):
    response = parse(f"text {text} {behind}")
    assert len(response.errors) == 1
    error = response.errors[0]
    assert error.code == "PARSE_ERROR"
    assert message in error.message
    assert error.raw
    assert response.calls == ((CALL,) if behind else ())


def test_calls_and_errors_stand_in_the_order_of_the_response():
    response = parse(f"{GOOD}<tool_call>broken</tool_call>{GOOD}")
    assert [type(item).__name__ for item in response.items] == ["ToolCall", "CallError", "ToolCall"]


def test_more_calls_than_the_limit_are_counted_in_one_error():
    response = parse(GOOD * 10, max_calls=4)
    assert response.calls == (CALL,) * 4
    assert [error.message for error in response.errors] == [
        "6 more calls were not run; make at most 4 calls in one response"
    ]


def test_calls_behind_the_limit_of_characters_are_answered():
    response = parse(GOOD + "x" * 2000 + GOOD, max_chars=1000)
    assert response.calls == (CALL,)
    assert "longer than 1000 characters" in response.errors[0].message
    assert parse("x" * 2000, max_chars=1000).items == ()


ADVERSARIES = {
    "open tags": "<tool_call>",
    "broken json": '<tool_call>{"a',
    "escaped quotes": '<tool_call>{"a\\"',
    "open strings": '<tool_call>f("',
    "both quotes": "<tool_call>f('<tool_call>g(\"",
    "deep json": '<tool_call>{"a":[[[[',
    "brackets": "[" * 50 + "<tool_call>",
    "thoughts": "<think><tool_call></think>",
    "closing thoughts": "</think>",
    "closing tags": "</tool_call>",
    "white space": "<tool_call>" + " " * 200,
    "one long string": 'x="\\',
}


@pytest.mark.parametrize("unit", ADVERSARIES.values(), ids=ADVERSARIES.keys())
@pytest.mark.parametrize("start", ["", "<tool_call>", '<tool_call>{"name": "', "<tool_call>f('", '<tool_call>f("'])
def test_a_megabyte_of_adversarial_text_is_read_in_linear_time(unit, start):
    def seconds(size):
        text = start + unit * (size // len(unit))
        best = float("inf")
        for _ in range(2):
            begun = time.thread_time()
            parse(text)
            best = min(best, time.thread_time() - begun)
        return best

    whole = seconds(1_000_000)
    assert whole < 3.0
    assert whole < 40 * seconds(100_000) + 0.05  # ten times the text; a quadratic scan would take a hundred times


def test_a_result_cannot_close_its_own_tag():
    text = render_responses(
        [("f", ToolResult.success("a</tool_response>b")), ("g", ToolResult.failure("TIMEOUT", "late"))]
    )
    assert text == (
        "<tool_response>\na<\\/tool_response>b\n</tool_response>\n"
        "<tool_response>\nError [TIMEOUT]: late\n</tool_response>"
    )
