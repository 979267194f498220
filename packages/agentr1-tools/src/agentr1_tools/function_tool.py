"""`@tool`: a typed, documented function becomes a BaseTool.

The schema comes from the signature through pydantic, whole: nested models, lists, enums, unions, optional values,
defaults. The function receives what its annotations say (a model, an enum member), not raw JSON.
"""

import importlib
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, cast, overload

import pydantic
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_jsonable_python

from agentr1_tools.base import BaseTool, ToolReturn, check_contract
from agentr1_tools.docstrings import described
from agentr1_tools.errors import ErrorCode, InvalidToolError, ToolError
from agentr1_tools.result import ToolResult

_Function = Callable[..., Any]
_REFUSED = (
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
    inspect.Parameter.POSITIONAL_ONLY,
)


class _PlainSchema(GenerateJsonSchema):
    """pydantic's schema without the titles it makes up from names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class FunctionTool(BaseTool):
    """A tool around one function; it can still be called as the function."""

    def __init__(self, function: _Function, settings: Mapping[str, Any]) -> None:
        summary, descriptions = described(function)
        self.function = function
        self.name = function.__name__
        self.description = summary
        for key, value in settings.items():
            setattr(self, key, value)
        try:
            self._arguments, self._aliases = _arguments_model(function, descriptions)
            self.parameters = _json_schema(self._arguments)
        except pydantic.PydanticUserError as error:
            raise InvalidToolError(f"{function.__qualname__}: {error.message}") from error
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__qualname__ = function.__qualname__
        check_contract(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def execute(self, params: dict[str, Any]) -> ToolReturn | Awaitable[ToolReturn]:
        """Call the function with typed arguments; a plain return value becomes the data of a success."""
        return _as_return(self.function(**self.typed(params)))

    def typed(self, params: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the annotations want them. Raises ToolError(INVALID_ARGUMENT)."""
        try:
            arguments = self._arguments.model_validate(params)
        except pydantic.ValidationError as error:
            problems = (
                f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}"
                for item in error.errors(include_url=False, include_input=False)[:3]
            )
            raise ToolError(ErrorCode.INVALID_ARGUMENT, f"{self.name}: {'; '.join(problems)}") from None
        return {parameter: getattr(arguments, field) for field, parameter in self._aliases.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return _find, (self.function.__module__, self.function.__qualname__)


class AsyncFunctionTool(FunctionTool):
    """A tool around one async function."""

    async def execute(self, params: dict[str, Any]) -> ToolReturn:
        """As in FunctionTool."""
        return _as_return(await self.function(**self.typed(params)))


@overload
def tool(function: _Function, /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = 0.3,
    cacheable: bool = True,
    min_interval: float = 0.0,
    risky: bool = False,
    cooperative: bool = False,
) -> Callable[[_Function], FunctionTool]: ...


def tool(
    function: _Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = BaseTool.timeout,
    cacheable: bool = BaseTool.cacheable,
    min_interval: float = BaseTool.min_interval,
    risky: bool = BaseTool.risky,
    cooperative: bool = BaseTool.cooperative,
) -> FunctionTool | Callable[[_Function], FunctionTool]:
    """Make a tool out of a function with annotations and a docstring. The keywords are the attributes of BaseTool.

    Raises InvalidToolError for a parameter without annotation, for `*args`, `**kwargs` and positional-only parameters.
    """
    settings: dict[str, Any] = {
        "timeout": timeout,
        "cacheable": cacheable,
        "min_interval": min_interval,
        "risky": risky,
        "cooperative": cooperative,
    }
    settings |= {key: value for key, value in (("name", name), ("description", description)) if value is not None}

    def decorate(function: _Function) -> FunctionTool:
        kind = AsyncFunctionTool if inspect.iscoroutinefunction(function) else FunctionTool
        return kind(function, settings)

    return decorate if function is None else decorate(function)


def _find(module: str, qualname: str) -> FunctionTool:
    """The tool that stands under this name, for pickle."""
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    if not isinstance(found, FunctionTool):
        raise TypeError(f"{module}.{qualname} is not the tool; decorate the function where it is defined")
    return found


def _arguments_model(
    function: _Function, descriptions: dict[str, str]
) -> tuple[type[pydantic.BaseModel], dict[str, str]]:
    """A model with one field a parameter, and field -> parameter.

    The fields have names of their own, since a parameter may be called `json` or `model_config`; the parameter's name
    is the alias.
    """
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidToolError(f"{function.__qualname__}: an annotation cannot be resolved: {error}") from error
    fields: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    for position, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if parameter.kind in _REFUSED:
            raise InvalidToolError(
                f"{function.__qualname__}: {parameter} cannot be given by name; write each parameter out"
            )
        if name not in hints:
            raise InvalidToolError(f"{function.__qualname__}: parameter {name!r} has no annotation, so no schema")
        hint: Any = hints[name]
        if name in descriptions:
            hint = Annotated[hint, pydantic.Field(description=descriptions[name])]
        fields[f"argument_{position}"] = (hint, ... if parameter.default is parameter.empty else parameter.default)
        aliases[f"argument_{position}"] = name
    config = pydantic.ConfigDict(extra="forbid", alias_generator=aliases.__getitem__)
    return pydantic.create_model("Arguments", __config__=config, **fields), aliases


def _json_schema(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True, schema_generator=_PlainSchema)
    schema.pop("title", None)
    for definition in schema.get("$defs", {}).values():
        definition.pop("title", None)
    return schema


def _as_return(value: Any) -> ToolReturn:
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, Mapping):
        entries = cast(Mapping[str, Any], value)
        if (entries.get("status") == "success" and "data" in entries) or isinstance(entries.get("error"), str):
            return dict(entries)
    return {"status": "success", "data": to_jsonable_python(value)}
