"""BatchRunner: calls of one tool, from whichever episodes they come, run together through its `execute_batch`.

Batches form by themselves: a call that finds the tool idle runs at once, and those that come while it runs make up the
next batch. There is no timer, so a lone call never waits. One batch runs at a time, led by the thread of one of its
callers. A batch that fails as a whole is nobody's result: each of its calls then runs alone, within a limit of its own.
"""

import os
import threading
import weakref
from collections import deque
from typing import Any, Protocol

from agentr1_tools.errors import ErrorCode
from agentr1_tools.result import ToolResult


class BatchableRunner(Protocol):
    """A runner that can also run many calls at once."""

    def open(self) -> None: ...

    def run(self, params: dict[str, Any]) -> ToolResult: ...

    def run_batch(self, batch: list[dict[str, Any]]) -> list[ToolResult] | None:
        """Results in order, or None when the batch failed as a whole."""
        ...

    def close(self) -> None: ...


class _Place:
    """A call in the queue. `called` is set once it has a result, leads a batch, or is left to run alone."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params
        self.result: ToolResult | None = None
        self.leads = False
        self.called = threading.Event()


class BatchRunner:
    """Collects the calls of a tool into batches of at most `max_batch`, in the order they came."""

    def __init__(self, runner: BatchableRunner, max_batch: int) -> None:
        self._runner = runner
        self._max_batch = max_batch
        self.forget()
        _living.add(self)

    def forget(self) -> None:
        """In a forked child: the calls that wait belong to threads of the parent."""
        self._waiting: deque[_Place] = deque()
        self._led = False
        self._lock = threading.Lock()

    def open(self) -> None:
        self._runner.open()

    def run(self, params: dict[str, Any]) -> ToolResult:
        """One call, in a batch with what came meanwhile; waiting for its batch is not on the clock of the call."""
        place = _Place(params)
        with self._lock:
            self._waiting.append(place)
            if not self._led:
                self._led = place.leads = True
        try:
            if not place.leads:
                place.called.wait()
            if place.leads:
                self._lead(place)
        except BaseException:  # the caller was interrupted: whoever waits behind it must not wait for ever
            self._leave(place)
            raise
        return self._runner.run(params) if place.result is None else place.result

    def close(self) -> None:
        """End the calls that wait as CANCELLED, and close the tool."""
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
            for place in waiting:
                place.result = ToolResult.failure(ErrorCode.CANCELLED, "the tool box was closed")
                place.called.set()
        self._runner.close()

    def _lead(self, leader: _Place) -> None:
        """Run the batch at the head of the queue, which the leader's own call belongs to; then the next may lead."""
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._max_batch))]
        try:
            results = self._run([place.params for place in batch])
            for place, result in zip(batch, results, strict=True):
                place.result = result
        finally:
            for place in batch:
                place.called.set()
            self._pass_on(leader)

    def _run(self, batch: list[dict[str, Any]]) -> list[ToolResult] | list[None]:
        if len(batch) == 1:
            return [self._runner.run(batch[0])]
        results = self._runner.run_batch(batch) if batch else []
        if results is None:
            return [None] * len(batch)
        return [result.with_metrics(batch=len(batch)) for result in results]

    def _pass_on(self, leader: _Place) -> None:
        with self._lock:
            leader.leads = False
            self._led = bool(self._waiting)
            if self._led:
                self._waiting[0].leads = True
                self._waiting[0].called.set()

    def _leave(self, place: _Place) -> None:
        with self._lock:
            if place in self._waiting:
                self._waiting.remove(place)
        if place.leads:
            self._pass_on(place)


_living: weakref.WeakSet[BatchRunner] = weakref.WeakSet()


def _forget_all() -> None:
    for runner in list(_living):
        runner.forget()


os.register_at_fork(after_in_child=_forget_all)
