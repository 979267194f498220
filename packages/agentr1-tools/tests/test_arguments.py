import pytest
from agentr1_tools import ToolCall, ToolError
from agentr1_tools.arguments import ArgumentChecker, canonical
from agentr1_tools.calls import Untyped
from agentr1_tools.errors import InvalidToolError

SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1},
        "place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
    "required": ["query"],
    "additionalProperties": False,
}


@pytest.fixture
def checker():
    return ArgumentChecker("find", SCHEMA)


def test_values_without_a_name_take_the_schemas_order(checker):
    assert checker.bind(ToolCall("find", {"place": {"city": "Oslo"}}, positional=("x", 3))) == {
        "query": "x",
        "limit": 3,
        "place": {"city": "Oslo"},
    }


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (ToolCall("find", positional=(1, 2, 3, 4)), "4 values without a name, but the tool has 3 parameters"),
        (ToolCall("find", {"query": "x"}, positional=("y",)), "query: given twice"),
        (ToolCall("find", [1]), "not an object"),
        (ToolCall("find", None), "not an object"),
    ],
)
def test_binding_errors_say_what_is_wrong(checker, call, message):
    with pytest.raises(ToolError, match=message) as caught:
        checker.bind(call)
    assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "'query' is a required property"),
        ({"query": 5}, "query: 5 is not of type 'string'"),
        ({"query": "x", "limit": 0}, "limit: 0 is less than the minimum of 1"),
        ({"query": "x", "limit": "3"}, "limit: '3' is not of type 'integer'"),
        ({"query": "x", "place": {"city": 1}}, "place.city: 1 is not of type 'string'"),
        ({"query": "x", "lmit": 3}, "unknown: lmit; did you mean 'limit'"),
        ({"query": {1, 2}}, "is a set"),
        ({"query": float("nan")}, "is nan"),
    ],
)
def test_validation_errors_name_the_argument(checker, arguments, message):
    with pytest.raises(ToolError, match=message) as caught:
        checker.validate(checker.bind(ToolCall("find", arguments)))
    assert caught.value.code == "INVALID_ARGUMENT"


def test_valid_arguments_pass(checker):
    checker.validate({"query": "x", "limit": 3, "place": {"city": "Oslo"}})


def test_a_long_value_does_not_fill_the_message(checker):
    with pytest.raises(ToolError) as caught:
        checker.validate({"query": "x", "limit": "y" * 100_000})
    assert len(caught.value.message) < 400


def test_a_reference_that_leads_nowhere_is_the_tools_fault_and_is_not_fetched():
    schema = {"type": "object", "properties": {"x": {"$ref": "https://example.invalid/schema.json"}}}
    with pytest.raises(ToolError, match="own schema cannot be applied") as caught:
        ArgumentChecker("find", schema).validate({"x": "y"})
    assert caught.value.code == "EXECUTION_ERROR"


@pytest.mark.parametrize("details", [{"type": "strang"}, {"pattern": "("}, {"minimum": "low"}])
def test_a_schema_that_is_none_is_refused_when_the_tool_is_taken_in(details):
    with pytest.raises(InvalidToolError, match=r"find.*no JSON Schema"):
        ArgumentChecker("find", {"type": "object", "properties": {"x": details}})


def test_canonical_is_the_same_for_equal_arguments_only():
    assert canonical({"a": 1, "b": {"d": 2, "c": 3}}) == canonical({"b": {"c": 3, "d": 2}, "a": 1})
    assert canonical({"a": 1}) != canonical({"a": "1"})
    assert canonical({"a": 1}) != canonical({"a": True})


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "integer"}, "5", 5),
        ({"type": "number"}, " 2.5 ", 2.5),
        ({"type": "boolean"}, "True", True),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
        ({"$ref": "#/$defs/Place"}, '{"city": "Oslo"}', {"city": "Oslo"}),
        ({"type": "integer"}, "five", "five"),
        ({"$ref": "#/$defs/Nowhere"}, "5", "5"),
        ({}, "5", "5"),
    ],
)
def test_untyped_text_is_read_by_the_schema(schema, text, value):
    whole = {"type": "object", "properties": {"x": schema}, "$defs": {"Place": {"type": "object"}}}
    checker = ArgumentChecker("find", whole)
    for call in (ToolCall("find", {"x": Untyped(text)}), ToolCall("find", positional=(Untyped(text),))):
        found = checker.bind(call)["x"]
        assert (found, type(found)) == (value, type(value))
    assert checker.bind(ToolCall("find", {"other": Untyped("5")})) == {"other": "5"}
