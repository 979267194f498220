"""A thousand malformed responses for each format: nothing raises, every attempt is answered, valid calls come back.

Each response is made from its own seed, the same seeds in every run: a failure names the seed that shows it.
"""

import re
from random import Random

import pytest
from agentr1_tools import CallError, ToolCall, get_format

NAMES = ("hermes", "call", "qwen3_coder", "llama3", "mistral", "pythonic", "harmony", "react", "tags")
FORMATS = {name: get_format(name) for name in NAMES}
EVERY = pytest.mark.parametrize("name", NAMES)
SEEDS = range(500)

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
IN_A_KNOWN_CALL = ["</tool_call>", "<think>", "[TOOL_CALLS]", "<|call|>", "\nAction: f[x]", '{"name": ', "])}", "<f>"]


def some(random, choices, most):
    return [random.choice(choices) for _ in range(random.randint(0, most))]


def value(random, depth=0):
    """Any JSON value, with texts that look like marks of a format."""
    kind = random.randrange(6 if depth < 2 else 4)
    if kind < 2:
        return "".join(some(random, [*IN_A_KNOWN_CALL, *COMMON], 4))
    if kind == 2:
        return random.choice([None, True, False, 1.5])
    if kind == 3:
        return random.randint(-(10**9), 10**9)
    if kind == 4:
        return [value(random, depth + 1) for _ in range(random.randint(0, 3))]
    return {random.choice(COMMON): value(random, depth + 1) for _ in range(random.randint(0, 3))}


def known_call(random, name):
    """A call the format can write, and its text; qwen3_coder holds texts, which have no type before the schema's.

    One argument is a text: without quotes between them, two broken calls can be read as one whole call around this one.
    """
    while True:
        arguments = {key: value(random) for key in random.sample("abcdef", random.randint(1, 3))}
        arguments["text"] = "".join(some(random, IN_A_KNOWN_CALL, 2))
        if name == "qwen3_coder":
            arguments = {key: str(given) for key, given in arguments.items()}
        call = ToolCall(f"known_{random.choice('xyz')}", arguments)
        try:
            return call, FORMATS[name].format_call(call)
        except ValueError:
            continue


def broken_call(random, name, number):
    """A call that was cut, or in which characters were lost or added, somewhere behind its head."""
    letters = "ab \"'\\{}[](),:;=\né"
    call = ToolCall(f"broken_{number}", {key: "".join(some(random, letters, 12)) for key in "ab"})
    text = FORMATS[name].format_call(call)
    place = random.randint(re.match(HEADS[name], text).end(), len(text))
    lost, added = random.choice([(len(text), ""), (random.randint(1, 3), ""), (0, random.choice(COMMON))])
    return text[:place] + added + text[place + lost :]


@EVERY
def test_noise_raises_nothing_and_an_attempt_is_answered(name):
    for seed in SEEDS:
        random = Random(seed)
        pieces = [*OPENERS[name], *PIECES[name], *COMMON]
        response = FORMATS[name].parse(random.choice(OPENERS[name]) + "".join(some(random, pieces, 25)))
        assert response.items, seed
        assert all(isinstance(item, (ToolCall, CallError)) for item in response.items), seed
        assert all(error.code == "PARSE_ERROR" and error.message for error in response.errors), seed
        assert isinstance(response.content, str), seed


@EVERY
def test_known_calls_come_back_exactly_and_every_broken_one_is_answered(name):
    for seed in SEEDS:
        random = Random(seed)
        lines = []
        for number in range(random.randint(1, 3)):  # two broken calls side by side can make one that is whole
            lines += [(None, broken_call(random, name, number)), known_call(random, name)]
        if random.random() < 0.5:
            lines = [known_call(random, name), *lines[:-1]]
        response = FORMATS[name].parse("\n".join(text for _, text in lines))
        known = [call for call, _ in lines if call is not None]
        assert [call for call in response.calls if call.name.startswith("known_")] == known, seed
        assert len(response.items) >= len(lines), seed
