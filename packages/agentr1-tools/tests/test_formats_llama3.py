import pytest
from agentr1_tools import ToolCall, ToolResult, get_format

LLAMA = get_format("llama3")


def test_it_writes_parameters():
    assert LLAMA.format_call(ToolCall("f", {"a": 1})) == '{"name": "f", "parameters": {"a": 1}}'
    with pytest.raises(ValueError, match="by name"):
        LLAMA.format_call(ToolCall("f", positional=(1,)))


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "f", "parameters": {"a": 1}}',
        '{"name": "f", "arguments": {"a": 1}}',
        '{"type": "function", "name": "f", "parameters": {"a": 1}}',
        '{"parameters": {"a": 1}, "name": "f"}<|eot_id|>',
        '<|python_tag|> {"name": "f", "parameters": {"a": 1}}<|eom_id|>',
        '```json\n{\n  "name": "f",\n  "parameters": {"a": 1}\n}\n```',
    ],
)
def test_what_it_reads(text):
    assert LLAMA.parse(text).items == (ToolCall("f", {"a": 1}),)


def test_several_are_separated_by_semicolons():
    response = LLAMA.parse('<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g"} ;{"name": "h"}')
    assert [call.name for call in response.calls] == ["f", "g", "h"]
    assert response.errors == ()


@pytest.mark.parametrize("text", ['{"answer": 5}', '<answer>{"name": "Bob"}</answer>', "{x: 1}"])
def test_other_json_is_an_answer(text):
    assert (LLAMA.parse(text).items, LLAMA.parse(text).content) == ((), text)


@pytest.mark.parametrize("text", ["<|python_tag|>print(1)", "{'name': 'f'}", '{"function": "f", "parameters": {}}'])
def test_attempts_that_are_no_calls_are_answered(text):
    assert len(LLAMA.parse(text).errors) == 1


def test_results_are_lines_of_json():
    text = LLAMA.render([("f", ToolResult.success("a\nb")), ("g", ToolResult.success({"x": 1}))])
    assert text == '{"output": "a\\nb"}\n{"output": "{\\"x\\": 1}"}'
