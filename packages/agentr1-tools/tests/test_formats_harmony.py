import pytest
from agentr1_tools import ToolCall, ToolResult, get_format

HARMONY = get_format("harmony")
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'


def test_it_writes_a_message_to_the_function():
    assert HARMONY.format_call(ToolCall("f", {"a": 1})) == CALL
    with pytest.raises(ValueError, match="by name"):
        HARMONY.format_call(ToolCall("f", positional=(1,)))


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        CALL.removesuffix("<|call|>"),
        f"<|start|>assistant{CALL}",
        '<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"a": 1}<|call|>',
        '<|channel|>commentary to=f<|message|>{"a": 1}<|call|>',
        f"<|channel|>analysis<|message|>I will call {CALL} now.<|end|><|start|>assistant{CALL}",
        f"<|start|>functions.f to=assistant<|channel|>commentary<|message|>{{}}<|end|>{CALL}",
    ],
)
def test_what_it_reads(text):
    assert HARMONY.parse(text).items == (ToolCall("f", {"a": 1}),)


def test_the_final_channel_is_content_and_analysis_is_not():
    text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>It is 5.<|return|>"
    assert (HARMONY.parse(text).items, HARMONY.parse(text).content) == ((), "It is 5.")
    assert HARMONY.parse("<|channel|>analysis<|message|>never ends").content == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}<|call|>', "<|call|> without a message"),
        ("<|channel|>commentary to=functions.f<|message|>{} and more<|call|>", "expected <|call|>"),
        ("<|channel|>commentary to=?<|message|>{}<|call|>", "expected to=functions.name"),
    ],
)
def test_faults(text, message):
    assert message in HARMONY.parse(text).errors[0].message


def test_results_are_messages_to_the_assistant():
    text = HARMONY.render([("f", ToolResult.success("5 <|end|>")), ("", ToolResult.failure("TIMEOUT", "late"))])
    assert text == (
        "<|start|>functions.f to=assistant<|channel|>commentary<|message|>5 <\\|end|><|end|>"
        "<|start|>functions to=assistant<|channel|>commentary<|message|>Error [TIMEOUT]: late<|end|>"
    )
