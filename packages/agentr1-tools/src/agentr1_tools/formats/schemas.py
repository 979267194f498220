"""The tools as text, for the instructions of a format. It reads OpenAI function schemas and checks nothing."""

import json
from collections.abc import Sequence
from typing import Any, cast

from agentr1_tools.formats.literals import write_value


def json_lines(schemas: Sequence[dict[str, Any]]) -> str:
    """One line of JSON a tool."""
    return "\n".join(json.dumps(schema, ensure_ascii=False) for schema in schemas)


def signature_lines(schemas: Sequence[dict[str, Any]]) -> str:
    """One line a tool: its signature and what it does."""
    return "\n".join(f"- {signature(schema)}: {schema['function']['description']}" for schema in schemas)


def signature(schema: dict[str, Any]) -> str:
    """`name(first, second=default)`."""
    function = schema["function"]
    required = set(function["parameters"].get("required", []))
    parts = [
        name if name in required else f"{name}={write_value(details.get('default'))}"
        for name, details in properties(schema).items()
    ]
    return f"{function['name']}({', '.join(parts)})"


def properties(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters by name, in order."""
    return schema["function"]["parameters"].get("properties", {})


def typescript(schema: dict[str, Any]) -> str:
    """The tool as a TypeScript type with comments: what gpt-oss reads."""
    function = schema["function"]
    required = set(function["parameters"].get("required", []))
    lines = [f"// {line}" for line in function["description"].splitlines()]
    fields: list[str] = []
    for name, details in properties(schema).items():
        fields += [f"// {line}" for line in str(details.get("description", "")).splitlines()]
        default = f" // default: {write_value(details['default'])}" if "default" in details else ""
        fields.append(f"{name}{'' if name in required else '?'}: {_type(details)},{default}")
    body = "_: {\n" + "\n".join(fields) + "\n}" if fields else ""
    return "\n".join([*lines, f"type {function['name']} = ({body}) => any;"])


def _type(details: dict[str, Any]) -> str:
    if "enum" in details:
        return " | ".join(write_value(value) for value in details["enum"])
    choices = cast(list[dict[str, Any]], details.get("anyOf") or details.get("oneOf") or [])
    if choices:
        return " | ".join(_type(choice) for choice in choices)
    kind: Any = details.get("type", "any")
    if isinstance(kind, list):
        return " | ".join(_type({**details, "type": part}) for part in cast(list[str], kind))
    if kind == "array":
        return f"({_type(details.get('items', {}))})[]"
    return {"integer": "number"}.get(kind, str(kind))
