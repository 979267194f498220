"""BaseTool: the contract of a tool. It knows nothing of boxes, formats, processes or environments."""

import inspect
import math
import re
from collections.abc import Awaitable
from typing import Any, cast

from agentr1_tools.errors import InvalidToolError
from agentr1_tools.result import ToolResult

ToolReturn = dict[str, Any] | ToolResult
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_NAME = re.compile(r"[a-z0-9_]{1,64}")


class BaseTool:
    """One thing a model can ask for. Subclass it and set the class attributes, or use `@tool` on a function.

    A tool keeps no state between calls: state belongs to the environment. What it needs (an index, a connection) it
    opens in `open()`, which is not on the clock of a call.

    name: unique, `[a-z0-9_]{1,64}`.
    description: what it does, for the model.
    parameters: JSON Schema 2020-12 of the arguments, an object.
    timeout: seconds a call may take; the limit is this one, never one the model passes.
    cacheable: equal arguments give equal results, so a box may answer from its cache.
    min_interval: seconds between the starts of two calls.
    risky: must run in a sandbox; a box runs a risky tool only when it is a `SandboxTool`.
    cooperative: `execute` lets other threads run and comes back by itself, so it may share the process. A tool that
        does not declare it runs in a worker process, which can be killed at the limit.
    max_batch: the most calls that are given to `execute_batch` at once, where it is defined; all of them together have
        `timeout` seconds.
    proxy: stands for a tool elsewhere and bears that tool's name, whatever its entry point is called.
    """

    name: str = ""
    description: str = ""
    parameters: dict[str, Any] = _NO_PARAMETERS
    timeout: float = 0.3
    cacheable: bool = True
    min_interval: float = 0.0
    risky: bool = False
    cooperative: bool = False
    max_batch: int = 64
    proxy: bool = False

    def open(self) -> None:
        """Get ready: called once in the process that will execute, before the first call."""

    def close(self) -> None:
        """Let go of what `open` took."""

    def execute(self, params: dict[str, Any]) -> ToolReturn | Awaitable[ToolReturn]:
        """Answer one call; `params` are valid against `parameters`. May be `async`.

        Returns `{"status": "success", "data": ...}`, `{"error": CODE, "message": ...}` or a ToolResult.
        """
        raise NotImplementedError(f"{type(self).__name__} must define execute(params)")

    def execute_batch(self, batch: list[dict[str, Any]]) -> list[ToolReturn] | Awaitable[list[ToolReturn]]:
        """Answer several calls at once: one result for each, in order. Define it where that is cheaper than one by one.

        Calls that arrive while the tool works make up the next batch, whichever episodes they come from. `execute` is
        still needed, for a lone call, and both must be `async` or neither. The failure of a call is its result, as in
        `execute`; when a batch as a whole raises, passes the limit or has the wrong length, its calls run again alone.
        """
        raise NotImplementedError(f"{type(self).__name__} runs its calls one by one")

    @property
    def batches(self) -> bool:
        """True when the tool defines `execute_batch`."""
        return getattr(self.execute_batch, "__func__", None) is not BaseTool.execute_batch

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as an OpenAI function: `{"type": "function", "function": {name, description, parameters}}`."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


def check_contract(tool: object) -> BaseTool:
    """Return the tool when its declarations are legal; raise InvalidToolError naming the first that is not."""
    if not isinstance(tool, BaseTool):
        raise InvalidToolError(
            f"{tool!r} is not a tool; legal are an instance of BaseTool and a function decorated with @tool"
        )
    given = cast(Any, tool)
    label = f"{type(tool).__name__}(name={given.name!r})"
    if not isinstance(given.name, str) or not _NAME.fullmatch(given.name):
        raise InvalidToolError(f"{label}: the name must match [a-z0-9_]{{1,64}}; set it on the class")
    if not isinstance(given.description, str) or not given.description.strip():
        raise InvalidToolError(
            f"{label}: the description is empty; say in a sentence what the tool does, for the model"
        )
    parameters: object = given.parameters
    if not isinstance(parameters, dict) or cast(dict[str, Any], parameters).get("type") != "object":
        raise InvalidToolError(f'{label}: parameters must be a JSON Schema with "type": "object"')
    if not _is_seconds(given.timeout) or given.timeout == 0:
        raise InvalidToolError(f"{label}: timeout is {given.timeout!r}; it must be a number of seconds above 0")
    if not _is_seconds(given.min_interval):
        raise InvalidToolError(f"{label}: min_interval is {given.min_interval!r}; it must be 0 or more seconds")
    if not isinstance(given.max_batch, int) or given.max_batch < 1:
        raise InvalidToolError(f"{label}: max_batch is {given.max_batch!r}; it must be a whole number, 1 or more")
    if tool.batches and inspect.iscoroutinefunction(tool.execute) != inspect.iscoroutinefunction(tool.execute_batch):
        raise InvalidToolError(f"{label}: one of execute and execute_batch is async; make both so, or neither")
    return tool


def _is_seconds(value: object) -> bool:
    """A number of seconds that a clock can wait for."""
    return isinstance(value, int | float) and 0 <= value < math.inf
