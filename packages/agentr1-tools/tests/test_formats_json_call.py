import pytest
from agentr1_tools.formats.json_call import read_json_call
from agentr1_tools.formats.literals import LiteralError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "f", "arguments": {"a": [1, {"b": "}"}]}}', ("f", {"a": [1, {"b": "}"}]}, "")),
        ('{"arguments": {}, "name": "f", "id": "c1"}', ("f", {}, "c1")),
        ('{"name": "f"}', ("f", {}, "")),
        ('{"name": "f", "id": 7}', ("f", {}, "")),
        ('{"name": "f", "arguments": {"a": "line\nbreak"}}', ("f", {"a": "line\nbreak"}, "")),
        ('{"name": "f", "arguments": {"a": "\\u00e9</tool_call>"}}', ("f", {"a": "é</tool_call>"}, "")),
    ],
)
def test_calls(text, expected):
    name, arguments, mark, end = read_json_call(text + " rest", 0)
    assert (name, arguments, mark) == expected
    assert end == len(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"name": "f", "arguments": {', "broken JSON"),
        ('{"name": "f", "arguments": {"a": NaN}}', "NaN is not JSON"),
        ('{"name": "f", "arguments": {"a": ' + "9" * 5000 + "}}", "broken JSON"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"arguments": {}}', 'needs "name"'),
        ('{"name": "", "arguments": {}}', 'needs "name"'),
        ('{"name": ["f"], "arguments": {}}', 'needs "name"'),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', '"arguments" is a string'),
        ('{"name": "f", "arguments": [1]}', '"arguments" is a list'),
        ('{"name": "f", "arguments": null}', '"arguments" is null'),
        ('{"name": "f", "arguments": 3}', '"arguments" is 3'),
        ('{"name": "f", "parameters": {"a": 1}}', 'under the key "arguments"'),
    ],
)
def test_faults(text, message):
    with pytest.raises(LiteralError, match=message):
        read_json_call(text, 0)
