"""Arguments made up from a JSON schema: enough to try a tool with. What a schema cannot tell is left to examples."""

import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any, cast

from agentr1_tools.arguments import ArgumentChecker
from agentr1_tools.calls import ToolCall
from agentr1_tools.errors import ToolError

Schema = dict[str, Any]

_MAX_DEPTH = 4
_EACH = 4
_WORDS = ("example", "A", "a", "1", "2024-05-17", "1 + 2", "abc-123", "ABC")
_FORMATS = {
    "date": "2024-05-17",
    "date-time": "2024-05-17T12:00:00Z",
    "time": "12:00:00Z",
    "email": "ada@example.org",
    "uri": "https://example.org/page",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "ipv4": "192.0.2.1",
}


def sample_arguments(name: str, schema: Schema, limit: int = 6) -> list[dict[str, Any]]:
    """Up to `limit` legal arguments, each different; none when the schema asks for what cannot be guessed.

    The schema's own `examples` come first, then all properties at their first value, then the required ones alone, then
    one property at a time at another value.
    """
    checker = ArgumentChecker(name, schema)
    found: dict[str, dict[str, Any]] = {}
    for arguments in _objects(schema, schema, 0):
        try:
            legal = checker.bind(ToolCall(name, arguments))
            checker.validate(legal)
        except ToolError:
            continue
        found.setdefault(json.dumps(legal, sort_keys=True), legal)
        if len(found) == limit:
            break
    return list(found.values())


def _objects(schema: Schema, root: Schema, depth: int) -> Iterator[dict[str, Any]]:
    yield from (example for example in schema.get("examples", ()) if isinstance(example, dict))
    properties = cast("dict[str, Any]", schema.get("properties", {}))
    required = set(cast("list[str]", schema.get("required", ())))
    values = {name: list(itertools.islice(_values(part, root, depth + 1), _EACH)) for name, part in properties.items()}
    values = {name: candidates for name, candidates in values.items() if candidates}
    needed = {name: candidates[0] for name, candidates in values.items() if name in required}
    if depth <= _MAX_DEPTH:
        first = {name: candidates[0] for name, candidates in values.items()}
        yield first
        yield needed
        for name, candidates in values.items():
            yield from ({**first, name: candidate} for candidate in candidates[1:])
    else:
        yield needed


def _values(schema: Any, root: Schema, depth: int) -> Iterator[Any]:
    """Values that the schema seems to allow, the likeliest first."""
    if not isinstance(schema, dict) or depth > 2 * _MAX_DEPTH:
        yield "example"
        return
    part = _resolved(cast(Schema, schema), root)
    if "const" in part:
        yield part["const"]
        return
    yield from part.get("enum", ())
    yield from part.get("examples", ())
    if "default" in part:
        yield part["default"]
    for alternative in (*part.get("anyOf", ()), *part.get("oneOf", ())):
        yield from itertools.islice(_values({**_without_choice(part), **alternative}, root, depth + 1), 2)
    if "enum" not in part and "anyOf" not in part and "oneOf" not in part:
        kinds = part.get("type", "string")
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            yield from _of_type(kind, part, root, depth)


def _of_type(kind: str, part: Schema, root: Schema, depth: int) -> Iterator[Any]:
    if kind == "string":
        yield from _strings(part)
    elif kind in ("integer", "number"):
        yield from _numbers(kind, part)
    elif kind == "boolean":
        yield from (True, False)
    elif kind == "null":
        yield None
    elif kind == "array":
        yield from _arrays(part, root, depth)
    elif kind == "object":
        yield from _objects(part, root, depth)


def _strings(part: Schema) -> Iterator[str]:
    least, most = int(part.get("minLength", 0)), int(part.get("maxLength", 1_000))
    pattern = part.get("pattern")
    for word in (*filter(None, [_FORMATS.get(part.get("format", ""))]), *_WORDS):
        fitted = (word * (least // len(word) + 1) if len(word) < least else word)[: max(most, least)]
        if pattern is None or re.search(pattern, fitted):
            yield fitted


def _numbers(kind: str, part: Schema) -> Iterator[float]:
    low = part.get("minimum", part.get("exclusiveMinimum", -math.inf))
    high = part.get("maximum", part.get("exclusiveMaximum", math.inf))
    step = part.get("multipleOf", 1)
    if math.isfinite(low) and math.isfinite(high):
        candidates = [(low + high) / 2, low, high]
    elif math.isfinite(low):
        candidates = [low + step, low]
    else:
        candidates = [high - step, high] if math.isfinite(high) else [2 * step, 0, -step]
    for candidate in candidates:
        whole = kind == "integer" or "multipleOf" in part
        yield int(candidate // step) * step if whole else float(candidate)


def _arrays(part: Schema, root: Schema, depth: int) -> Iterator[list[Any]]:
    count = max(int(part.get("minItems", 0)), 1)
    items = list(itertools.islice(_values(part.get("items", {}), root, depth + 1), _EACH))
    heads = [next(_values(head, root, depth + 1), None) for head in part.get("prefixItems", ())]
    if items:
        filled = [items[place % len(items)] for place in range(max(0, count - len(heads)))]
        yield [*heads, *filled]
    if not part.get("minItems"):
        yield []


def _resolved(part: Schema, root: Schema) -> Schema:
    """The schema with its reference (within the document) and its `allOf` laid into it."""
    for _ in range(_MAX_DEPTH):
        if "$ref" not in part:
            break
        target = root
        for name in str(part["$ref"]).removeprefix("#/").split("/"):
            target = cast(Schema, target.get(name.replace("~1", "/").replace("~0", "~"), {}))
        part = {**target, **{key: value for key, value in part.items() if key != "$ref"}}
    for more in part.get("allOf", ()):
        part = {**part, **_resolved(more, root)}
    return part


def _without_choice(part: Schema) -> Schema:
    return {key: value for key, value in part.items() if key not in ("anyOf", "oneOf", "default", "examples")}
