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
_MAX_DEPTH = 100


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
        return ToolResult("error", data=data, error=code, text=well_formed(f"Error [{code}]: {message}"))

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
    What comes out is a copy in plain Python types, the same wherever the tool ran.
    """
    try:
        return _checked(returned)
    except NotJsonError as problem:
        return _invalid(str(problem))
    except Exception as error:  # an object whose own methods fail
        return _invalid(f"reading it raised {type(error).__name__}")


def normalise_batch(returned: object, count: int) -> list[ToolResult] | None:
    """Each result of a batch by itself; None when it is not a list of `count`, so that nobody knows whose is whose."""
    if not isinstance(returned, list | tuple) or len(cast("list[object]", returned)) != count:
        return None
    return [normalise(item) for item in cast("list[object]", returned)]


def _checked(returned: object) -> ToolResult:
    if isinstance(returned, ToolResult):
        result = returned
    elif isinstance(returned, Mapping):
        result = _from_mapping(cast(Mapping[str, Any], returned))
    else:
        return _invalid(f"execute returned {type(returned).__name__}, not a dict or a ToolResult")
    if result.status not in ("success", "error") or (result.status == "error") != isinstance(result.error, str):
        return _invalid(f"status {result.status!r} does not go with error {result.error!r}")
    if result.error == "":
        return _invalid("'error' is an empty string; it must be a code")
    if not isinstance(cast(object, result.text), str):
        return _invalid(f"text is {type(result.text).__name__}, not str")
    if not isinstance(cast(object, result.metrics), Mapping):
        return _invalid("'metrics' must be a dict")
    data, metrics = as_json(result.data), as_json(result.metrics, "metrics")
    text = well_formed(result.text)
    if not text and data is not None:
        text = render_data(data)
    return replace(result, data=data, text=text, metrics=metrics)


def _from_mapping(returned: Mapping[str, Any]) -> ToolResult:
    if "error" in returned and returned["error"] is not None:
        if not isinstance(returned["error"], str):
            return _invalid("'error' must be a code, a string")
        if not returned["error"]:
            return _invalid("'error' is an empty string; it must be a code")
        return ToolResult.failure(returned["error"], str(returned.get("message", "")), returned.get("data"))
    if returned.get("status") != "success" or "data" not in returned:
        return _invalid(
            f'a dict with the keys {sorted(map(str, returned))}; legal are {{"status": "success", "data": ...}} '
            f'and {{"error": CODE, "message": ...}}'
        )
    text = returned.get("text")
    return ToolResult("success", returned["data"], None, "" if text is None else text, returned.get("metrics", {}))


def _invalid(problem: str) -> ToolResult:
    return ToolResult.failure(ErrorCode.INVALID_RESULT, f"the tool's result is not valid: {problem}")


class NotJsonError(ValueError):
    """A value that JSON cannot hold; the message says where it stands and what it is."""


def as_json(value: Any, path: str = "data", depth: int = 0) -> Any:
    """A copy of a JSON value in plain Python types: tuples become lists, text is well formed. Raises NotJsonError."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise NotJsonError(f"{path} is a whole number of more than {_MAX_BITS} bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJsonError(f"{path} is {float(value)}, which JSON cannot hold")
        return float(value)
    if depth > _MAX_DEPTH:
        raise NotJsonError(f"{path} is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        copied: dict[str, Any] = {}
        for key, item in cast(Mapping[Any, Any], value).items():
            if not isinstance(key, str):
                raise NotJsonError(f"{path} has a key that is no string but a {type(key).__name__}")
            key = well_formed(key)
            copied[key] = as_json(item, f"{path}.{key}", depth + 1)
        return copied
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return [as_json(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(items)]
    raise NotJsonError(f"{path} is a {type(value).__name__}, which JSON cannot hold")


def well_formed(text: str) -> str:
    """The text as a plain `str` that UTF-8 can hold: a lone surrogate, which no tokenizer takes, becomes U+FFFD."""
    text = str.__str__(text)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def timeout_result(seconds: float) -> ToolResult:
    """The predefined result of a call that passed its limit."""
    return ToolResult.failure(ErrorCode.TIMEOUT, f"the tool gave no answer within {seconds:g} s")


def from_exception(error: BaseException) -> ToolResult:
    """The result of a call whose `execute` raised. The model reads type and message, never a traceback."""
    if isinstance(error, SandboxUnavailableError):
        return ToolResult.failure(ErrorCode.SANDBOX_ERROR, str(error))
    if isinstance(error, asyncio.CancelledError):
        return ToolResult.failure(ErrorCode.CANCELLED, "the call was cancelled")
    if isinstance(error, ToolError):
        return ToolResult.failure(error.code, error.message)
    _log.debug("a tool raised", exc_info=error)
    code = ErrorCode.NETWORK_ERROR if isinstance(error, ConnectionError) else ErrorCode.EXECUTION_ERROR
    try:
        message = " ".join(str(error).split())[:500]
    except Exception:  # an exception that cannot say what it is
        message = ""
    return ToolResult.failure(code, f"{type(error).__name__}: {message}" if message else type(error).__name__)
