"""How results become HTTP answers: JSON in ASCII, so that any text, lone surrogates too, gets through."""

import json
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError

from agentr1_tools.errors import ErrorCode
from agentr1_tools.result import ToolResult


def json_response(value: Any, status: int = 200) -> Response:
    """A JSON value as an answer."""
    return Response(json.dumps(value), status_code=status, media_type="application/json")


def as_response(result: ToolResult, status: int = 200) -> Response:
    """One result as an answer."""
    return json_response(as_json(result), status)


def as_json(result: ToolResult) -> dict[str, Any]:
    """One result as a JSON object, with the fields of ToolResult."""
    return {
        "status": result.status,
        "data": result.data,
        "error": result.error,
        "text": result.text,
        "metrics": dict(result.metrics),
        "source": result.source,
    }


async def refuse_malformed(_: Request, error: Exception) -> Response:
    """The answer to a body that is not of the endpoint's form: which field, and why."""
    assert isinstance(error, RequestValidationError)
    problems = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:3]]
    return as_response(ToolResult.failure(ErrorCode.PARSE_ERROR, "; ".join(problems)), 422)
