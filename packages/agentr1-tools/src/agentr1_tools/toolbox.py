"""ToolBox: some tools, and everything that happens to one call.

    known tool? -> arguments valid? -> (an injected error?) -> rate limit -> cache -> runner, within the timeout
        -> result valid? -> truncated

A failed call is data: nothing a call does raises. The box knows no text format and no environment.
"""

import asyncio
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from agentr1_tools.arguments import ArgumentChecker, canonical
from agentr1_tools.base import BaseTool, check_contract
from agentr1_tools.cache import ResultCache
from agentr1_tools.calls import CallError, ToolCall
from agentr1_tools.errors import (
    DuplicateNameError,
    ErrorCode,
    ToolConfigError,
    ToolError,
    ToolOpenError,
    UnknownToolError,
    did_you_mean,
    listed,
)
from agentr1_tools.injection import injected_result
from agentr1_tools.limits import RateLimit, truncate
from agentr1_tools.registry import load_tool
from agentr1_tools.result import ToolResult, from_exception
from agentr1_tools.runners import LoopRunner, Runner, make_runner
from agentr1_tools.tally import Tally
from agentr1_tools.threads import callers

NO_TOOL = "(no tool)"


@dataclass(frozen=True)
class _Slot:
    """One tool of the box and what goes with it."""

    tool: BaseTool
    checker: ArgumentChecker
    rate: RateLimit
    runner: Runner
    tally: Tally


@dataclass(frozen=True)
class _Admitted:
    """A call that is known and valid; `delay` seconds from now it may start.

    arguments: a copy, so that what the tool does to it reaches nobody else. key: their canonical form, made before the
    tool sees them; empty for a tool that is not cacheable.
    """

    slot: _Slot
    arguments: dict[str, Any]
    key: str
    delay: float


class ToolBox:
    """Runs calls of a set of tools.

    tools: instances, or names that are loaded from the registry.
    cache_size: successes kept for tools that are cacheable; 0 turns the cache off.
    max_result_chars: longer texts keep their head and tail.
    on_rate_limit: a call inside a tool's `min_interval` (counted in this box) waits, or ends as RATE_LIMITED.
    allow: the only names of `tools` this box takes in; without it all.
    workers: processes a tool that is not cooperative may use at the same time.
    """

    def __init__(
        self,
        tools: Iterable[BaseTool | str],
        *,
        cache_size: int = 4096,
        max_result_chars: int = 4000,
        on_rate_limit: Literal["wait", "error"] = "wait",
        allow: Iterable[str] | None = None,
        workers: int = 4,
    ) -> None:
        _check_settings(cache_size, max_result_chars, on_rate_limit, workers)
        allowed = None if allow is None else frozenset(allow)
        self._slots: dict[str, _Slot] = {}
        for given in tools:
            tool = check_contract(load_tool(given) if isinstance(given, str) else given)
            if tool.name in self._slots:
                raise DuplicateNameError(f"two tools of this box are called {tool.name!r}; rename one or leave it out")
            if allowed is None or tool.name in allowed:
                checker = ArgumentChecker(tool.name, tool.parameters)
                self._slots[tool.name] = _Slot(
                    tool, checker, RateLimit(tool.min_interval), make_runner(tool, workers), Tally()
                )
        if allowed and (missing := allowed - self._slots.keys()):
            raise UnknownToolError(f"allow names {listed(missing)}, but the tools are {listed(self._slots)}")
        self._cache = ResultCache(cache_size)
        self._max_result_chars = max_result_chars
        self._wait = on_rate_limit == "wait"
        self._strangers = Tally()
        self._opened = _Opened({name: slot.runner for name, slot in self._slots.items()})
        weakref.finalize(self, self._opened.close)

    @property
    def names(self) -> list[str]:
        """Names of the tools, in the order they were given."""
        return list(self._slots)

    @property
    def tools(self) -> list[BaseTool]:
        """The tools themselves, in the order they were given."""
        return [slot.tool for slot in self._slots.values()]

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools as OpenAI functions, in the order they were given."""
        return [slot.tool.schema for slot in self._slots.values()]

    def open(self) -> None:
        """Open every tool; the first call does it too. Raises ToolOpenError naming the tool, with nothing left open."""
        self._opened.open()

    def close(self) -> None:
        """Close every tool and end every worker process; calls there, and later ones, end as CANCELLED."""
        self._opened.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, call: ToolCall | CallError, inject: str | None = None) -> ToolResult:
        """Run one call; blocks at most a little longer than the tool's timeout, beside waiting for its turn.

        inject: the code of an error that takes the place of the result of a call that is known and valid (for training;
        see `ErrorInjection`). The tool does not run, the result has `injected` in its metrics and is not cached.
        """
        admitted = self._admit(call, inject)
        if isinstance(admitted, ToolResult):
            return admitted
        if admitted.delay > 0:
            time.sleep(admitted.delay)
        if (kept := self._look_up(admitted)) is not None:
            return kept
        started = time.perf_counter()
        result = admitted.slot.runner.run(admitted.arguments)
        return self._finish(admitted, result, time.perf_counter() - started)

    async def acall(self, call: ToolCall | CallError, inject: str | None = None) -> ToolResult:
        """As `call`, without blocking the event loop."""
        slot = self._slots.get(str(call.name)) if isinstance(call, ToolCall) else None
        if slot is None or not isinstance(slot.runner, LoopRunner):
            return await asyncio.wrap_future(callers.submit(lambda: self.call(call, inject)))
        admitted = self._admit(call, inject)
        if isinstance(admitted, ToolResult):
            return admitted
        await asyncio.sleep(admitted.delay)
        if (kept := self._look_up(admitted)) is not None:
            return kept
        started = time.perf_counter()
        result = await slot.runner.arun(admitted.arguments)
        return self._finish(admitted, result, time.perf_counter() - started)

    def call_many(
        self, calls: Sequence[ToolCall | CallError], inject: Sequence[str | None] | None = None
    ) -> list[ToolResult]:
        """Run the calls of one response together; results stand in the order of the calls.

        inject: for each call as in `call`; without it none fails on purpose.
        """
        pairs = _paired(calls, inject)
        if len(pairs) < 2:
            return [self.call(*pair) for pair in pairs]
        jobs = [callers.submit(lambda pair=pair: self.call(*pair)) for pair in pairs]
        return [job.result() for job in jobs]

    async def acall_many(
        self, calls: Sequence[ToolCall | CallError], inject: Sequence[str | None] | None = None
    ) -> list[ToolResult]:
        """As `call_many`, without blocking the event loop."""
        return list(await asyncio.gather(*(self.acall(*pair) for pair in _paired(calls, inject))))

    def metrics(self) -> dict[str, dict[str, Any]]:
        """For each tool: calls, errors by code, injected, cache_hits, cache_misses, seconds_p50, seconds_p95.

        Calls that reached no tool (unreadable, unknown) stand under "(no tool)", once there is one.
        """
        report = {name: slot.tally.report() for name, slot in self._slots.items()}
        strangers = self._strangers.report()
        return {**report, NO_TOOL: strangers} if strangers["calls"] else report

    def _admit(self, call: ToolCall | CallError, inject: str | None) -> _Admitted | ToolResult:
        """Everything before the cache: the call may go on, or this is its result."""
        if isinstance(call, CallError):
            return self._refuse(call.code, call.message)
        name = str(call.name)
        slot = self._slots.get(name)
        if slot is None:
            hint = did_you_mean(name, self._slots)
            return self._refuse(ErrorCode.UNKNOWN_TOOL, f"no tool {name!r}{hint} (tools: {listed(self._slots)})")
        try:
            arguments = slot.checker.bind(call)
            slot.checker.validate(arguments)
            self._opened.open_unless_closed()
        except (ToolError, ToolOpenError) as error:
            return self._settle(slot, from_exception(error))
        if inject is not None:
            return self._settle(slot, injected_result(inject, slot.tool.timeout))
        delay = slot.rate.reserve(wait=self._wait)
        if delay is None:
            problem = f"{call.name} may be called once in {slot.tool.min_interval:g} s; try again later"
            return self._settle(slot, ToolResult.failure(ErrorCode.RATE_LIMITED, problem))
        return _Admitted(slot, arguments, canonical(arguments) if slot.tool.cacheable else "", delay)

    def _look_up(self, admitted: _Admitted) -> ToolResult | None:
        slot = admitted.slot
        if not slot.tool.cacheable:
            return None
        kept = self._cache.get(slot.tool.name, admitted.key)
        slot.tally.looked_up(hit=kept is not None)
        if kept is None:
            return None
        kept = kept.with_metrics(cached=True, seconds=0.0)
        slot.tally.finished(kept, None)
        return kept

    def _finish(self, admitted: _Admitted, result: ToolResult, seconds: float) -> ToolResult:
        """Everything after the runner."""
        text = truncate(result.text, self._max_result_chars)
        result = replace(result, text=text, source=admitted.slot.tool.name).with_metrics(
            cached=False, seconds=seconds, truncated=text != result.text
        )
        if admitted.slot.tool.cacheable:
            self._cache.put(admitted.slot.tool.name, admitted.key, result)
        admitted.slot.tally.finished(result, seconds)
        return result

    def _settle(self, slot: _Slot, result: ToolResult) -> ToolResult:
        """The result of a call to a known tool that never ran."""
        text = truncate(result.text, self._max_result_chars)
        result = replace(result, text=text, source=slot.tool.name).with_metrics(cached=False, seconds=0.0)
        slot.tally.finished(result, None)
        return result

    def _refuse(self, code: str, message: str) -> ToolResult:
        result = ToolResult.failure(code, truncate(message, self._max_result_chars))
        self._strangers.finished(result, None)
        return result.with_metrics(cached=False, seconds=0.0)


def _paired(
    calls: Sequence[ToolCall | CallError], inject: Sequence[str | None] | None
) -> list[tuple[ToolCall | CallError, str | None]]:
    return list(zip(calls, [None] * len(calls) if inject is None else inject, strict=True))


class _Opened:
    """Whether the runners of a box are open. It outlives the box long enough to close them."""

    def __init__(self, runners: dict[str, Runner]) -> None:
        self._runners = runners
        self._state: Literal["new", "open", "closed"] = "new"
        self._lock = threading.Lock()

    def open(self) -> None:
        with self._lock:
            if self._state != "open":
                self._open_all()
                self._state = "open"

    def open_unless_closed(self) -> None:
        """Open for a first call. Raises ToolError(CANCELLED) when the box was closed."""
        if self._state == "new":
            self.open()
        elif self._state == "closed":
            raise ToolError(ErrorCode.CANCELLED, "the tool box is closed")

    def close(self) -> None:
        with self._lock:
            was_open, self._state = self._state == "open", "closed"
            if was_open:
                for runner in self._runners.values():
                    runner.close()

    def _open_all(self) -> None:
        opened: list[Runner] = []
        for name, runner in self._runners.items():
            try:
                runner.open()
            except ToolOpenError as error:
                for earlier in opened:
                    earlier.close()
                raise type(error)(f"tool {name!r} cannot be opened: {error}") from error
            opened.append(runner)


def _check_settings(cache_size: int, max_result_chars: int, on_rate_limit: str, workers: int) -> None:
    if cache_size < 0:
        raise ToolConfigError(f"cache_size is {cache_size}; it must be 0 (off) or more")
    if max_result_chars < 100:
        raise ToolConfigError(f"max_result_chars is {max_result_chars}; it must be 100 or more")
    if on_rate_limit not in ("wait", "error"):
        raise ToolConfigError(f"on_rate_limit is {on_rate_limit!r}; legal are 'wait' and 'error'")
    if workers < 1:
        raise ToolConfigError(f"workers is {workers}; it must be 1 or more")
