"""ToolResult: what every call ends in, and how a tool's return value becomes one.

Nothing here runs a tool; `normalise` and `from_exception` are pure and are used on both sides of a worker process.
"""

import asyncio
import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from agentr1_tools.errors import ErrorCode, SandboxUnavailableError, ToolError

_log = logging.getLogger(__name__)

Status = Literal["success", "error"]
_MAX_BITS = 14_000  # Python refuses to write whole numbers of more than 4,300 digits


@dataclass(frozen=True)
class ToolResult:
    """The outcome of one call.

    status: "success" or "error".
    data: JSON value of a success (an error may carry details).
    error: code of a failure, None on success.
    text: what the model reads.
    metrics: numbers and flags about this call (`seconds`, `cached`, `truncated`).
    source: name of the tool that answered; empty for a call that reached no tool.
    """

    status: Status
    data: Any = None
    error: str | None = None
    text: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict[str, Any])
    source: str = ""

    @property
    def ok(self) -> bool:
        """True when the call succeeded."""
        return self.status == "success"

    @staticmethod
    def success(data: Any, text: str | None = None) -> "ToolResult":
        """A success; without a text the model reads the data (strings as they are, the rest as JSON)."""
        return ToolResult("success", data=data, text=render_data(data) if text is None else text)

    @staticmethod
    def failure(code: str, message: str, data: Any = None) -> "ToolResult":
        """A failure with its code; the model reads `Error [CODE]: message`."""
        code = str(code)
        return ToolResult("error", data=data, error=code, text=f"Error [{code}]: {message}")

    def with_metrics(self, **values: Any) -> "ToolResult":
        """A copy with these metrics added."""
        return replace(self, metrics={**self.metrics, **values})


def render_data(data: Any) -> str:
    """Text of a JSON value for a model: strings as they are, everything else as JSON. Raises as `json.dumps` does."""
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, allow_nan=False)


def normalise(returned: object) -> ToolResult:
    """Turn what `execute` returned into a ToolResult, or into `INVALID_RESULT` saying what is wrong with it.

    Legal are a ToolResult, `{"status": "success", "data": ...}` with an optional `text` and `metrics`, and
    `{"error": CODE, "message": ...}` with an optional `data`. Data must be a JSON value: finite numbers, string keys.
    """
    if isinstance(returned, ToolResult):
        result = returned
    elif isinstance(returned, Mapping):
        result = _from_mapping(cast(Mapping[str, Any], returned))
    else:
        return _invalid(f"execute returned {type(returned).__name__}, not a dict or a ToolResult")
    if result.status not in ("success", "error") or (result.status == "error") != isinstance(result.error, str):
        return _invalid(f"status {result.status!r} does not go with error {result.error!r}")
    if not isinstance(cast(object, result.text), str):
        return _invalid(f"text is {type(result.text).__name__}, not str")
    problem = json_problem(result.data) or json_problem(dict(result.metrics), "metrics")
    if problem:
        return _invalid(problem)
    if not result.text and result.data is not None:
        return replace(result, text=render_data(result.data))
    return result


def _from_mapping(returned: Mapping[str, Any]) -> ToolResult:
    if "error" in returned and returned["error"] is not None:
        if not isinstance(returned["error"], str):
            return _invalid("'error' must be a code, a string")
        return ToolResult.failure(returned["error"], str(returned.get("message", "")), returned.get("data"))
    if returned.get("status") != "success" or "data" not in returned:
        return _invalid(
            f'a dict with the keys {sorted(map(str, returned))}; legal are {{"status": "success", "data": ...}} '
            f'and {{"error": CODE, "message": ...}}'
        )
    problem = json_problem(returned["data"])
    if problem:
        return _invalid(problem)
    metrics = returned.get("metrics", {})
    if not isinstance(metrics, Mapping):
        return _invalid("'metrics' must be a dict")
    result = ToolResult.success(returned["data"], returned.get("text"))
    return result.with_metrics(**cast(dict[str, Any], metrics))


def _invalid(problem: str) -> ToolResult:
    return ToolResult.failure(ErrorCode.INVALID_RESULT, f"the tool's result is not valid: {problem}")


def json_problem(value: Any, path: str = "data", depth: int = 0) -> str | None:
    """Say why a value is not JSON (where, and what stands there), or None when it is."""
    if value is None or isinstance(value, (str, bool)):
        return None
    if isinstance(value, int):
        return None if value.bit_length() <= _MAX_BITS else f"{path} is a whole number of more than {_MAX_BITS} bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{path} is {value}, which JSON cannot hold"
    if depth > 100:
        return f"{path} is nested more than 100 deep"
    if isinstance(value, Mapping):
        entries = cast(Mapping[Any, Any], value)
        for key, item in entries.items():
            if not isinstance(key, str):
                return f"{path} has the key {key!r}, which is not a string"
            if problem := json_problem(item, f"{path}.{key}", depth + 1):
                return problem
        return None
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(cast(list[Any], value)):
            if problem := json_problem(item, f"{path}[{index}]", depth + 1):
                return problem
        return None
    return f"{path} is a {type(value).__name__}, which JSON cannot hold"


def from_exception(error: BaseException) -> ToolResult:
    """The result of a call whose `execute` raised. The model reads type and message, never a traceback."""
    if isinstance(error, ToolError):
        return ToolResult.failure(error.code, error.message)
    if isinstance(error, SandboxUnavailableError):
        return ToolResult.failure(ErrorCode.SANDBOX_ERROR, str(error))
    if isinstance(error, asyncio.CancelledError):
        return ToolResult.failure(ErrorCode.CANCELLED, "the call was cancelled")
    _log.debug("a tool raised", exc_info=error)
    code = ErrorCode.NETWORK_ERROR if isinstance(error, ConnectionError) else ErrorCode.EXECUTION_ERROR
    message = " ".join(str(error).split())[:500]
    return ToolResult.failure(code, f"{type(error).__name__}: {message}" if message else type(error).__name__)
