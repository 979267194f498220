import enum
import pickle
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pydantic
import pytest
from agentr1_tools import ToolError, ToolResult, tool
from agentr1_tools.errors import InvalidToolError
from agentr1_tools.result import normalise


class Unit(enum.Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


class Place(pydantic.BaseModel):
    city: str
    near: list[str] = []


@tool
def forecast(
    place: Place,
    unit: Unit = Unit.CELSIUS,
    days: Annotated[int, pydantic.Field(ge=1, le=7)] = 3,
    hours: list[int] | None = None,
    style: Literal["short", "long"] = "short",
    json: dict[str, float] | str = "none",
) -> dict[str, Any]:
    """Forecast the weather.

    Args:
        place: Where.
        unit: Of the temperature.
        days: How far ahead.
    """
    return {"city": place.city, "unit": unit.name, "days": days, "hours": hours, "style": style, "json": json}


def test_the_schema_keeps_everything_the_signature_says():
    properties = forecast.parameters["properties"]
    assert forecast.name == "forecast"
    assert forecast.description == "Forecast the weather."
    assert forecast.parameters["required"] == ["place"]
    assert forecast.parameters["additionalProperties"] is False
    assert properties["place"] == {"$ref": "#/$defs/Place", "description": "Where."}
    assert properties["unit"] == {
        "$ref": "#/$defs/Unit",
        "default": "celsius",
        "description": "Of the temperature.",
    }
    assert properties["days"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 7,
        "default": 3,
        "description": "How far ahead.",
    }
    assert properties["hours"] == {
        "anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}],
        "default": None,
    }
    assert properties["style"] == {"enum": ["short", "long"], "type": "string", "default": "short"}
    assert properties["json"]["anyOf"] == [
        {"type": "object", "additionalProperties": {"type": "number"}},
        {"type": "string"},
    ]
    assert forecast.parameters["$defs"]["Unit"] == {"enum": ["celsius", "kelvin"], "type": "string"}
    assert forecast.parameters["$defs"]["Place"] == {
        "properties": {
            "city": {"type": "string"},
            "near": {"type": "array", "items": {"type": "string"}, "default": []},
        },
        "required": ["city"],
        "type": "object",
    }


def test_the_function_gets_what_its_annotations_say():
    result = normalise(forecast.execute({"place": {"city": "Oslo"}, "unit": "kelvin", "json": {"a": 1}}))
    assert result.data == {
        "city": "Oslo",
        "unit": "KELVIN",
        "days": 3,
        "hours": None,
        "style": "short",
        "json": {"a": 1.0},
    }


def test_defaults_are_the_functions_own():
    result = normalise(forecast.execute({"place": {"city": "Oslo"}}))
    assert (result.data["unit"], result.data["json"]) == ("CELSIUS", "none")


def test_a_default_may_be_a_field():
    @tool
    def shout(text: str = pydantic.Field("hey", max_length=5, description="What.")) -> str:
        """Shout."""
        return text.upper()

    assert shout.parameters["properties"]["text"] == {
        "type": "string",
        "default": "hey",
        "maxLength": 5,
        "description": "What.",
    }
    assert normalise(shout.execute({})).data == "HEY"


def test_wrong_arguments_are_INVALID_ARGUMENT():
    with pytest.raises(ToolError, match=r"forecast: place.city: Field required") as caught:
        forecast.execute({"place": {}})
    assert caught.value.code == "INVALID_ARGUMENT"


def test_the_tool_is_still_the_function():
    assert forecast(Place(city="Oslo"), days=1)["days"] == 1


def test_settings_are_attributes_of_the_tool():
    @tool(name="slow_add", description="Adds, slowly.", timeout=2.0, cacheable=False, cooperative=True)
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert (add.name, add.timeout, add.cacheable, add.cooperative) == ("slow_add", 2.0, False, True)
    assert normalise(add.execute({"a": 2})).data == 3


async def test_an_async_function_stays_async():
    @tool
    async def add(a: int) -> int:
        """Add one."""
        return a + 1

    assert normalise(await add.execute({"a": 2})).data == 3


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Place(city="Oslo"), {"city": "Oslo", "near": []}),
        ([Unit.KELVIN], ["kelvin"]),
        (None, None),
        ({"status": "success", "data": 5}, 5),
        ({"status": "open"}, {"status": "open"}),
        (ToolResult.success(6), 6),
    ],
)
def test_return_values_become_data(value, data):
    @tool
    def give() -> Any:
        """Give."""
        return value

    assert normalise(give.execute({})).data == data


def test_an_error_dict_is_an_error():
    @tool
    def fail() -> dict[str, str]:
        """Fail."""
        return {"error": "INVALID_CITY", "message": "no"}

    assert normalise(fail.execute({})).error == "INVALID_CITY"


def test_what_has_no_schema_is_refused_at_once():
    with pytest.raises(InvalidToolError, match="parameter 'a' has no annotation"):

        @tool
        def untyped(a):
            """Untyped."""

    with pytest.raises(InvalidToolError, match=r"\*args"):

        @tool
        def variadic(*args: int):
            """Variadic."""

    with pytest.raises(InvalidToolError, match="cannot be given by name"):

        @tool
        def positional(a: int, /):
            """Positional."""

    with pytest.raises(InvalidToolError, match="description is empty"):

        @tool
        def silent(a: int):
            return a

    with pytest.raises(InvalidToolError, match="cannot be resolved"):

        @tool
        def forward(a: "Nowhere"):  # noqa: F821
            """Forward."""

    with pytest.raises(InvalidToolError):

        @tool
        def opaque(a: type("Opaque", (), {})):
            """Opaque."""

    with pytest.raises(InvalidToolError, match="back"):

        @tool
        def back(a: Callable[[int], int]):
            """Call back."""

    with pytest.raises(TypeError, match="nmae"):
        tool(nmae="typo")


def test_a_tool_of_a_module_is_pickled_by_name(tmp_path, monkeypatch):
    (tmp_path / "somebodys_tools.py").write_text(
        "from agentr1_tools import tool\n"
        "@tool(timeout=2)\n"
        "def add(a: int) -> int:\n"
        "    '''Add one.'''\n"
        "    return a + 1\n"
        "def plain(a: int) -> int:\n"
        "    '''Add two.'''\n"
        "    return a + 2\n"
        "wrapped = tool(plain)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import somebodys_tools

    assert pickle.loads(pickle.dumps(somebodys_tools.add)) is somebodys_tools.add
    with pytest.raises(TypeError, match="decorate the function where it is defined"):
        pickle.loads(pickle.dumps(somebodys_tools.wrapped))
    del sys.modules["somebodys_tools"]
