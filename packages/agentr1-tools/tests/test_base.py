import pytest
from agentr1_tools import BaseTool
from agentr1_tools.base import check_contract
from agentr1_tools.errors import InvalidToolError


class Good(BaseTool):
    name = "good"
    description = "Does good."


def test_a_tool_is_an_openai_function():
    assert Good().schema == {
        "type": "function",
        "function": {
            "name": "good",
            "description": "Does good.",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    }


def test_defaults_of_the_contract():
    tool = Good()
    assert (tool.timeout, tool.cacheable, tool.min_interval, tool.risky, tool.cooperative) == (
        0.3,
        True,
        0,
        False,
        False,
    )


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("name", "Bad Name", "must match"),
        ("name", "", "must match"),
        ("name", "x" * 65, "must match"),
        ("name", None, "must match"),
        ("description", "  ", "description is empty"),
        ("parameters", {"type": "array"}, '"type": "object"'),
        ("parameters", [], '"type": "object"'),
        ("timeout", 0, "timeout is 0"),
        ("timeout", float("nan"), "timeout is nan"),
        ("timeout", float("inf"), "timeout is inf"),
        ("timeout", "1", "timeout is '1'"),
        ("min_interval", -1, "min_interval is -1"),
        ("min_interval", float("inf"), "min_interval is inf"),
        ("max_batch", 0, "max_batch is 0"),
        ("max_batch", 2.5, "max_batch is 2.5"),
    ],
)
def test_a_broken_declaration_is_named(attribute, value, message):
    tool = Good()
    setattr(tool, attribute, value)
    with pytest.raises(InvalidToolError, match=message):
        check_contract(tool)


def test_only_tools_are_tools():
    with pytest.raises(InvalidToolError, match="@tool"):
        check_contract(print)
    with pytest.raises(TypeError):
        check_contract(Good)


def test_execute_must_be_defined():
    with pytest.raises(NotImplementedError, match="Good must define execute"):
        Good().execute({})
