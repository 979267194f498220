"""Arguments against a tool's schema: names for positional values, validation, the canonical form for the cache."""

import json
from typing import Any, Protocol, cast

import jsonschema
from jsonschema.exceptions import SchemaError
from referencing import Registry

from agentr1_tools.calls import ToolCall, Untyped
from agentr1_tools.errors import ErrorCode, InvalidToolError, ToolError, did_you_mean, listed
from agentr1_tools.formats.literals import read_literal
from agentr1_tools.result import NotJsonError, as_json

_MAX_PROBLEMS = 3


class _Problem(Protocol):
    message: str
    validator: str
    validator_value: Any
    instance: Any
    absolute_path: Any


class ArgumentChecker:
    """The compiled schema of one tool. References outside the schema are refused, never fetched."""

    def __init__(self, name: str, schema: dict[str, Any]) -> None:
        validator: Any = jsonschema.Draft202012Validator
        try:
            validator.check_schema(schema)
        except SchemaError as error:
            raise InvalidToolError(f"tool {name!r}: parameters is no JSON Schema 2020-12: {error.message}") from error
        self.name = name
        self._schemas: dict[str, Any] = schema.get("properties", {})
        self.properties: list[str] = list(self._schemas)
        self._validator: Any = validator(schema, registry=cast(Any, Registry)())

    def bind(self, call: ToolCall) -> dict[str, Any]:
        """The call's arguments by name, untyped texts as the schema types them; a copy that is the tool's alone.

        Raises ToolError(INVALID_ARGUMENT) for too many values, one given twice, or one that is no JSON value.
        """
        if not isinstance(cast(object, call.arguments), dict):
            raise self._error(f"the arguments are {call.arguments!r:.100}, not an object of name: value")
        arguments = call.arguments
        if call.positional:
            if len(call.positional) > len(self.properties):
                raise self._error(
                    f"{len(call.positional)} values without a name, but the tool has {len(self.properties)} "
                    f"parameters: {', '.join(self.properties) or 'none'}"
                )
            named = dict(zip(self.properties, call.positional, strict=False))
            if twice := named.keys() & arguments.keys():
                raise self._error(f"{listed(twice)}: given twice, once without a name and once with it")
            arguments = named | arguments
        try:
            return cast("dict[str, Any]", as_json(self._typed(arguments), "the arguments"))
        except NotJsonError as problem:
            raise self._error(str(problem)) from None

    def validate(self, arguments: dict[str, Any]) -> None:
        """Raise ToolError(INVALID_ARGUMENT) saying which argument is wrong and why."""
        try:
            problems: list[_Problem] = sorted(self._validator.iter_errors(arguments), key=_position)
        except Exception as error:  # a pattern that is no regex, a reference that leads nowhere
            message = f"{self.name}: the tool's own schema cannot be applied: {error}"
            raise ToolError(ErrorCode.EXECUTION_ERROR, message) from error
        if problems:
            raise self._error("; ".join(self._describe(problem) for problem in problems[:_MAX_PROBLEMS]))

    def _typed(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not any(isinstance(value, Untyped) for value in arguments.values()):
            return arguments
        return {
            name: self._read(value, name) if isinstance(value, Untyped) else value for name, value in arguments.items()
        }

    def _read(self, text: Untyped, name: str) -> Any:
        """Text where the schema takes text, else the value it spells."""
        plain = str(text)
        try:
            if name not in self._schemas or not any(self._validator.descend(plain, self._schemas[name])):
                return plain
            return read_literal(plain)
        except Exception:  # it spells nothing, or the schema cannot be applied: `validate` says what is wrong
            return plain

    def _describe(self, problem: _Problem) -> str:
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem.absolute_path)
        message = problem.message if len(problem.message) <= 300 else problem.message[:297] + "..."
        where = f"{path.lstrip('.')}: {message}" if path else message
        if problem.validator == "additionalProperties" and not path:
            unknown = set(problem.instance) - set(self.properties)
            hints = "".join(did_you_mean(name, self.properties) for name in sorted(unknown)[:1])
            where = f"unknown: {listed(unknown)}{hints} (parameters: {', '.join(self.properties) or 'none'})"
        return where

    def _error(self, message: str) -> ToolError:
        return ToolError(ErrorCode.INVALID_ARGUMENT, f"{self.name}: {message}")


def _position(problem: _Problem) -> list[str]:
    return [str(part) for part in problem.absolute_path]


def canonical(arguments: dict[str, Any]) -> str:
    """One text for equal arguments, whatever the order of their keys: the cache key beside the tool's name."""
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
