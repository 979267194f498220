"""How a cooperative tool runs: sync ones on a daemon thread, async ones on the background loop, both with a limit.

A tool that is not cooperative runs in a process instead (`worker.runner`). A risky one runs there too when it is a
SandboxTool, which keeps what is risky in a sandbox (`sandbox.runner`), and is refused here when it is not.
"""

import asyncio
import copy
import inspect
import logging
from collections.abc import Awaitable
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Protocol, cast

from agentr1_tools.base import BaseTool, ToolReturn
from agentr1_tools.batching import BatchableRunner, BatchRunner
from agentr1_tools.errors import ErrorCode, ToolOpenError
from agentr1_tools.result import ToolResult, from_exception, normalise, normalise_batch, timeout_result
from agentr1_tools.sandbox.runner import SandboxRunner
from agentr1_tools.sandbox.tool import SandboxTool
from agentr1_tools.threads import background, executors
from agentr1_tools.worker.runner import ProcessRunner

_log = logging.getLogger(__name__)


class Runner(Protocol):
    """Runs the calls of one tool. `run` blocks, never raises, and comes back soon after the tool's timeout."""

    def open(self) -> None: ...

    def run(self, params: dict[str, Any]) -> ToolResult: ...

    def close(self) -> None: ...


def make_runner(tool: BaseTool, workers: int) -> Runner:
    """The runner a tool's declarations ask for."""
    if isinstance(tool, SandboxTool):
        return SandboxRunner(tool, workers)
    if tool.risky:
        return RefusingRunner()
    runner = single_runner(tool, workers)
    return BatchRunner(runner, tool.max_batch) if tool.batches else runner


def single_runner(tool: BaseTool, workers: int) -> BatchableRunner:
    """A runner that forms no batches: a process, the event loop, or threads."""
    if not tool.cooperative:
        return ProcessRunner(tool, workers)
    return LoopRunner(tool) if inspect.iscoroutinefunction(tool.execute) else ThreadRunner(tool)


class ThreadRunner:
    """A cooperative sync tool on a daemon thread. A call past its limit is left to end by itself."""

    def __init__(self, tool: BaseTool) -> None:
        self._tool = tool

    def open(self) -> None:
        _open_here(self._tool)

    def run(self, params: dict[str, Any]) -> ToolResult:
        job = executors.submit(lambda: self._execute(params))
        try:
            return job.result(self._tool.timeout)
        except FutureTimeoutError:
            job.cancel()
            return timeout_result(self._tool.timeout)

    def run_batch(self, batch: list[dict[str, Any]]) -> list[ToolResult] | None:
        job = executors.submit(lambda: self._execute_batch(copy.deepcopy(batch)))
        try:
            return job.result(self._tool.timeout)
        except FutureTimeoutError:
            job.cancel()
            return None

    def close(self) -> None:
        self._tool.close()

    def _execute(self, params: dict[str, Any]) -> ToolResult:
        try:
            returned: object = self._tool.execute(params)
            if inspect.isawaitable(returned):
                returned = asyncio.run(_await(returned))
            return normalise(returned)
        except BaseException as error:
            return from_exception(error)

    def _execute_batch(self, batch: list[dict[str, Any]]) -> list[ToolResult] | None:
        try:
            returned: object = self._tool.execute_batch(batch)
            if inspect.isawaitable(returned):
                returned = asyncio.run(_await(returned))
            return normalise_batch(returned, len(batch))
        except BaseException as error:
            _log.debug("%s: its batch failed, its calls run alone", self._tool.name, exc_info=error)
            return None


class LoopRunner:
    """A cooperative async tool on the background loop."""

    def __init__(self, tool: BaseTool) -> None:
        self._tool = tool
        self._tasks: set[asyncio.Task[Any]] = set()

    def open(self) -> None:
        _open_here(self._tool)

    def run(self, params: dict[str, Any]) -> ToolResult:
        job = asyncio.run_coroutine_threadsafe(self._execute(params), background.get())
        try:
            return job.result(self._tool.timeout + 0.2)  # the loop's own limit comes first, unless the tool blocks it
        except FutureTimeoutError:
            job.cancel()
            return timeout_result(self._tool.timeout)
        except CancelledError as error:
            return from_exception(asyncio.CancelledError(*error.args))

    async def arun(self, params: dict[str, Any]) -> ToolResult:
        """As `run`, from any running loop and without a thread."""
        job = asyncio.run_coroutine_threadsafe(self._execute(params), background.get())
        try:
            return await asyncio.wait_for(asyncio.wrap_future(job), self._tool.timeout + 0.2)
        except TimeoutError:
            return timeout_result(self._tool.timeout)

    def run_batch(self, batch: list[dict[str, Any]]) -> list[ToolResult] | None:
        job = asyncio.run_coroutine_threadsafe(self._execute_batch(copy.deepcopy(batch)), background.get())
        try:
            return job.result(self._tool.timeout + 0.2)
        except (FutureTimeoutError, CancelledError):
            job.cancel()
            return None

    def close(self) -> None:
        """Cancel the calls that run; they end as CANCELLED."""
        loop = background.get()
        for task in list(self._tasks):
            loop.call_soon_threadsafe(task.cancel)
        self._tool.close()

    async def _execute(self, params: dict[str, Any]) -> ToolResult:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._tasks.add(task)
        limit = asyncio.timeout(self._tool.timeout)
        try:
            async with limit:
                return normalise(await cast(Awaitable[ToolReturn], self._tool.execute(params)))
        except TimeoutError as error:
            return timeout_result(self._tool.timeout) if limit.expired() else from_exception(error)
        except BaseException as error:
            return from_exception(error)
        finally:
            self._tasks.discard(task)

    async def _execute_batch(self, batch: list[dict[str, Any]]) -> list[ToolResult] | None:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._tasks.add(task)
        try:
            async with asyncio.timeout(self._tool.timeout):
                returned = await cast(Awaitable[object], self._tool.execute_batch(batch))
            return normalise_batch(returned, len(batch))
        except asyncio.CancelledError as error:
            return [from_exception(error) for _ in batch]
        except BaseException as error:
            _log.debug("%s: its batch failed, its calls run alone", self._tool.name, exc_info=error)
            return None
        finally:
            self._tasks.discard(task)


class RefusingRunner:
    """A risky tool that does not say what of it could run in a sandbox."""

    def open(self) -> None: ...

    def run(self, params: dict[str, Any]) -> ToolResult:
        problem = "the tool is risky, and says nothing of what to run in a sandbox; derive it from SandboxTool"
        return ToolResult.failure(ErrorCode.SANDBOX_ERROR, problem)

    def close(self) -> None: ...


def _open_here(tool: BaseTool) -> None:
    try:
        tool.open()
    except Exception as error:
        raise ToolOpenError(f"{type(error).__name__}: {error}") from error


async def _await(awaitable: Awaitable[object]) -> object:
    return await awaitable
