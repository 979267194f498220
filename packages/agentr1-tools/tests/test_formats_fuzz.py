"""A thousand malformed responses for each format: nothing raises, every attempt is answered, valid calls come back."""

import re
from functools import cache

import pytest
from agentr1_tools import CallError, ToolCall, get_format
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = ("hermes", "call", "qwen3_coder", "llama3", "mistral", "pythonic", "harmony", "react", "tags")
FORMATS = {name: get_format(name) for name in NAMES}
EVERY = pytest.mark.parametrize("name", NAMES)
HALF = settings(max_examples=500, derandomize=True, deadline=None, database=None)

# What begins a call, and the pieces its format is made of.
OPENERS = {
    "hermes": ["<tool_call>"],
    "call": ["<tool_call>"],
    "qwen3_coder": ["<tool_call>", "<function=f>"],
    "llama3": ['{"name": "f", "parameters": ', "<|python_tag|>"],
    "mistral": ["[TOOL_CALLS]", "[TOOL_CALLS]["],
    "pythonic": ["[f(", "[f(a="],
    "harmony": ["<|channel|>commentary to=functions.f <|message|>", "<|start|>assistant to=functions.f"],
    "react": ["\nAction: ", "\nAction: f["],
    "tags": ["<f>", "<search>"],
}
PIECES = {
    "hermes": ["</tool_call>", '{"name": "f", "arguments": ', "f("],
    "call": ["</tool_call>", "f(", ")", "a="],
    "qwen3_coder": ["</tool_call>", "<parameter=a>", "</parameter>", "</function>", "<function="],
    "llama3": ["; ", "<|eom_id|>", '{"parameters": {}', '{"name"'],
    "mistral": ['{"name": "f", "arguments": ', "f[ARGS]", "[CALL_ID]", ", ", "]"],
    "pythonic": [")", "]", ", g(", "<|python_start|>", "<|python_end|>"],
    "harmony": ["<|call|>", "<|end|>", "<|return|>", "<|message|>", "<|constrain|>json", "<|start|>assistant"],
    "react": ["\nAction Input: ", "\nObservation: ", "\nFinal Answer: ", "\nfinish[", "\nf[", "]\n"],
    "tags": ["</f>", "</search>", "<answer>", "</answer>", "<b>"],
}
COMMON = ["{", "}", "[", "]", '"', "'", "\\", ":", ",", "null", "1", '{"a": "x"}', " ", "\n", "é🎉", "\u2028", "\x00"]

# In a broken call, up to where is its head whole: what comes behind may be anything, and it still is an attempt.
HEADS = {
    "hermes": "<tool_call>\n",
    "call": "<tool_call>",
    "qwen3_coder": r"<tool_call>\n<function=\w+>\n",
    "llama3": r'\{"name": "\w+", "parameters": ',
    "mistral": r'\[TOOL_CALLS\]\[\{"name": "\w+", "arguments": ',
    "pythonic": r"\[\w+\(",
    "harmony": r"<\|channel\|>commentary to=functions\.\w+ <\|constrain\|>json<\|message\|>",
    "react": r"Action: \w+\nAction Input: \{",
    "tags": r"<\w+>",
}
PLAIN = st.text("ab \"'\\{}[](),:;=\né", max_size=12)
KNOWN_TEXT = st.lists(
    st.sampled_from(
        ["</tool_call>", "<think>", "[TOOL_CALLS]", "<|call|>", "\nAction: f[x]", '{"name": ', "])}", "<f>"]
    )
    | st.text(max_size=6),
    max_size=4,
).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | KNOWN_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@cache
def known_calls(name):
    """Calls that the format can write; the texts of qwen3_coder have no other type before the schema gives one."""
    values = KNOWN_TEXT if name == "qwen3_coder" else VALUES
    arguments = st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), values, min_size=1, max_size=3)
    calls = st.builds(ToolCall, st.from_regex(r"known_[a-z]{1,5}", fullmatch=True), arguments)
    return calls.filter(lambda call: written(name, call) is not None)


def written(name, call):
    """The call as text, None where the format cannot write it."""
    try:
        return FORMATS[name].format_call(call)
    except ValueError:
        return None


@st.composite
def noises(draw, name):
    """Openers and pieces of the format in any order."""
    pieces = st.sampled_from([*OPENERS[name], *PIECES[name], *COMMON]) | st.text(max_size=4)
    return draw(st.sampled_from(OPENERS[name])) + "".join(draw(st.lists(pieces, max_size=25)))


@st.composite
def broken_calls(draw, name):
    """A call that was cut, or in which characters were lost or added, somewhere behind its head."""
    call = ToolCall(f"broken_{draw(st.integers(0, 10**6))}", {"a": draw(PLAIN), "b": draw(PLAIN)})
    text = FORMATS[name].format_call(call)
    head = re.match(HEADS[name], text).end()
    place = draw(st.integers(head, len(text)))
    kind = draw(st.sampled_from(["cut", "lose", "add"]))
    if kind == "cut":
        return text[:place]
    rest = text[place + draw(st.integers(1, 3)) :] if kind == "lose" else draw(st.sampled_from(COMMON)) + text[place:]
    return text[:place] + rest


@st.composite
def mixtures(draw, name):
    """Lines of broken and known calls in any order, and the known ones."""
    known = draw(st.lists(known_calls(name), min_size=1, max_size=3))
    broken = draw(st.lists(broken_calls(name), min_size=1, max_size=3))
    lines = [(call, written(name, call)) for call in known] + [(None, text) for text in broken]
    lines = draw(st.permutations(lines))
    return "\n".join(text for _, text in lines), [call for call, _ in lines if call is not None], len(lines)


@EVERY
@HALF
@given(data=st.data())
def test_noise_raises_nothing_and_an_attempt_is_answered(name, data):
    noise = data.draw(noises(name))
    response = FORMATS[name].parse(noise)
    assert response.items
    assert all(isinstance(item, (ToolCall, CallError)) for item in response.items)
    assert all(error.code == "PARSE_ERROR" and error.message for error in response.errors)
    assert isinstance(response.content, str)


@EVERY
@HALF
@given(data=st.data())
def test_known_calls_come_back_exactly_and_every_broken_one_is_answered(name, data):
    text, known, attempts = data.draw(mixtures(name))
    response = FORMATS[name].parse(text)
    assert [call for call in response.calls if call.name.startswith("known_")] == known
    assert len(response.items) >= attempts
