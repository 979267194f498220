"""SandboxRunner: how a tool box runs a SandboxTool."""

from typing import Any

from agentr1_tools.errors import ErrorCode, ToolOpenError
from agentr1_tools.result import ToolResult
from agentr1_tools.sandbox.tool import SandboxTool
from agentr1_tools.worker.runner import ProcessRunner

_GRACE_SECONDS = 2.0


class SandboxRunner:
    """Worker processes that start sandboxes: what a sandbox leaves is killed and reaped as what any tool leaves.

    The sandbox is found here, once, so that a refusal or a warning reaches whoever opens the box. A call ends at the
    tool's own limit, by itself; the worker's, a little later, is for the case that ending it fails.
    """

    def __init__(self, tool: SandboxTool, limit: int) -> None:
        self._tool = tool
        self._limit = limit
        self._workers: ProcessRunner | None = None

    def open(self) -> None:
        """Find the sandbox and start the first worker. Raises ToolOpenError."""
        try:
            self._tool.open()
        except ToolOpenError:
            raise
        except Exception as error:
            raise ToolOpenError(f"{type(error).__name__}: {error}") from error
        self._workers = ProcessRunner(self._tool, self._limit, grace=_GRACE_SECONDS)
        self._workers.open()

    def run(self, params: dict[str, Any]) -> ToolResult:
        """One call, in a free worker."""
        if self._workers is None:
            return ToolResult.failure(ErrorCode.SANDBOX_ERROR, "the sandbox was not opened")
        return self._workers.run(params)

    def close(self) -> None:
        """End all workers and what runs in their sandboxes."""
        if self._workers is not None:
            self._workers.close()
        if self._tool.sandbox is not None:
            self._tool.sandbox.tidy()
