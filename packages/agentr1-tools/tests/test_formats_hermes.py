import json

import pytest
from agentr1_tools import CallError, ToolCall, ToolFormat, ToolResult, get_format, load_tool
from agentr1_tools.formats.hermes import HermesFormat
from hypothesis import given, settings
from hypothesis import strategies as st

HERMES = HermesFormat()
ARGUMENTS = st.dictionaries(
    st.text(max_size=8),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)
CALLS = st.builds(ToolCall, st.from_regex(r"[a-z_]{1,12}", fullmatch=True), ARGUMENTS)
NOISE = st.lists(
    st.sampled_from(
        [
            "<tool_call>",
            "</tool_call>",
            "<think>",
            "{",
            "}",
            '"name"',
            ":",
            '"',
            "'",
            "\\",
            "f(",
            ")",
            ",",
            "[",
            "null",
            "é🎉",
            "\n",
        ]
    )
    | st.text(max_size=5),
    max_size=30,
).map("".join)


def test_it_is_a_tool_format():
    assert isinstance(get_format("hermes"), ToolFormat)


def test_the_instructions_hold_every_schema_and_the_way_to_call():
    schemas = [load_tool("calculator").schema, load_tool("wiki_search").schema]
    text = HERMES.instructions(schemas)
    lines = text.splitlines()
    tools = lines[lines.index("<tools>") + 1 : lines.index("</tools>")]
    assert [json.loads(line) for line in tools] == schemas
    assert '<tool_call>\n{"name": "the tool\'s name", "arguments": {"parameter": "value"}}\n</tool_call>' in text


@given(CALLS)
def test_what_it_writes_it_reads(call):
    assert HERMES.parse(HERMES.format_call(call)).items == (call,)


def test_positional_values_cannot_be_written():
    with pytest.raises(ValueError, match="by name"):
        HERMES.format_call(ToolCall("f", positional=(1,)))


def test_it_also_reads_the_short_form():
    text = '<tool_call>wiki_search("Einstein", max_results=3)</tool_call>'
    assert HERMES.parse(text).items == (ToolCall("wiki_search", {"max_results": 3}, positional=("Einstein",)),)


def test_an_unknown_name_is_the_boxs_affair():
    assert HERMES.parse('<tool_call>{"name": "nowhere", "arguments": {}}</tool_call>').calls[0].name == "nowhere"


def test_results_are_one_message():
    text = HERMES.render([("f", ToolResult.success({"a": 1})), ("g", ToolResult.failure("TIMEOUT", "late"))])
    assert text == (
        '<tool_response>\n{"a": 1}\n</tool_response>\n<tool_response>\nError [TIMEOUT]: late\n</tool_response>'
    )


@settings(max_examples=500)
@given(NOISE)
def test_noise_raises_nothing_and_every_attempt_outside_thinking_is_answered(noise):
    response = HERMES.parse(noise)
    if "<tool_call>" in noise and "think>" not in noise:
        assert response.items
    assert all(isinstance(item, (ToolCall, CallError)) for item in response.items)


@settings(max_examples=200)
@given(st.lists(CALLS, min_size=1, max_size=3), st.lists(st.text(max_size=20), min_size=4, max_size=4))
def test_valid_calls_come_back_exactly_from_among_broken_ones(calls, texts):
    texts = [text.replace("<", "(") for text in texts]
    parts = [texts[0]]
    for call, text in zip(calls, texts[1:], strict=False):
        parts += ['<tool_call>{"name": "x", "arguments": [1]}</tool_call>', text, HERMES.format_call(call)]
    response = HERMES.parse("".join(parts))
    assert response.calls == tuple(calls)
    assert len(response.errors) == len(calls)
