from typing import Annotated, Literal

import pydantic
import pytest
from agentr1_tools import ToolCall, load_tool, tool
from agentr1_tools.arguments import ArgumentChecker
from agentr1_tools.sample_arguments import sample_arguments


class Place(pydantic.BaseModel):
    city: str
    near: "Place | None" = None


@tool
def visit(
    places: list[Place],
    by: Literal["train", "boat"],
    budget: Annotated[float, pydantic.Field(gt=0, le=100)] = 10.0,
    note: str | None = None,
) -> None:
    """Visit places."""


def of(**properties):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@pytest.mark.parametrize(
    "schema",
    [
        visit.parameters,
        load_tool("calculator").parameters,
        load_tool("wiki_search").parameters,
        {"type": "object"},
        of(word={"type": "string", "minLength": 30}, short={"type": "string", "maxLength": 2}),
        of(day={"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}, mail={"type": "string", "format": "email"}),
        of(x={"type": "integer", "exclusiveMinimum": 3, "maximum": 5}, y={"type": "number", "multipleOf": 0.25}),
        of(x={"type": "integer", "minimum": 7}, y={"type": "integer", "maximum": -7}),
        of(x={"const": 5}, y={"enum": ["a", 1]}, z={"type": ["null", "integer"]}),
        of(x={"type": "array", "items": {"type": "integer"}, "minItems": 3}),
        of(x={"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 2, "uniqueItems": True}),
        of(x={"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2}),
        of(x={"oneOf": [{"type": "integer", "minimum": 5}, {"type": "string", "minLength": 2}]}),
        of(x={"allOf": [{"type": "integer"}, {"minimum": 9}]}, y={"type": "boolean"}),
    ],
)
def test_what_is_made_up_is_legal_and_different(schema):
    made = sample_arguments("probe", schema)
    checker = ArgumentChecker("probe", schema)
    assert made
    for arguments in made:
        checker.validate(checker.bind(ToolCall("probe", arguments)))
    assert all(one != other for place, one in enumerate(made) for other in made[:place])


def test_alternatives_are_tried_one_at_a_time():
    made = sample_arguments("visit", visit.parameters, limit=20)
    assert {arguments["by"] for arguments in made} == {"train", "boat"}
    assert {"budget" in arguments for arguments in made} == {True, False}
    assert len(sample_arguments("visit", visit.parameters, limit=2)) == 2


def test_the_examples_of_the_schema_come_first():
    schema = {**of(city={"type": "string", "pattern": "^Q.*z$"}), "examples": [{"city": "Quiz"}, {"town": "x"}]}
    assert sample_arguments("probe", schema) == [{"city": "Quiz"}]
    assert sample_arguments("probe", of(city={"type": "string", "pattern": "^Q.*z$", "examples": ["Qz"]})) == [
        {"city": "Qz"}
    ]


def test_what_cannot_be_guessed_gives_nothing():
    assert sample_arguments("probe", of(city={"type": "string", "pattern": "^Q.*z$"})) == []
    assert sample_arguments("probe", of(x={"$ref": "#/$defs/nowhere"}, y={"not": {}})) == []
