"""ProcessRunner: the parent's side of worker processes.

Workers are started before the calls, used again and again, and killed with everything below them when a call passes its
limit.
"""

import contextlib
import logging
import os
import pickle
import socket
import threading
import time
import weakref
from typing import Any

from agentr1_tools.base import BaseTool
from agentr1_tools.errors import ErrorCode, ToolOpenError
from agentr1_tools.result import ToolResult, timeout_result
from agentr1_tools.worker import processes
from agentr1_tools.worker.channel import Channel, ChannelClosed
from agentr1_tools.worker.nursery import NurseryError, NurseryGoneError, shared
from agentr1_tools.worker.serve import OPEN_SECONDS, guard

_log = logging.getLogger(__name__)


class Worker:
    """One process and the channel to it."""

    def __init__(self, pid: int, channel: Channel, guardian: int | None = None) -> None:
        self._channel = channel
        self._guardian = guardian
        self._ready = False
        self._handle = processes.Handle(pid)

    def wait_until_ready(self) -> None:
        """Wait for the tool's `open()`. Raises ToolOpenError."""
        if self._ready:
            return
        try:
            answer = self._channel.receive(OPEN_SECONDS)
        except TimeoutError:
            raise ToolOpenError(f"open() did not return within {OPEN_SECONDS:g} s") from None
        except ChannelClosed:
            raise ToolOpenError("the process ended while open() ran") from None
        if not answer["ready"]:
            raise ToolOpenError(str(answer["error"]))
        self._ready = True

    def ask(self, what: dict[str, Any], seconds: float) -> Any:
        """One request. Raises TimeoutError and ChannelClosed; after either the worker is of no more use."""
        self._channel.send({**what, "timeout": seconds})
        return self._channel.receive(seconds)

    def alive(self) -> bool:
        """False once the process has ended."""
        return self._handle.alive()

    def kill(self) -> None:
        """End the process and all below it; returns when they hold nothing any more."""
        self.strike()
        with contextlib.suppress(Exception):
            while True:  # the channel ends when the last holder of its other end is gone
                self._channel.receive(1.0)
        self.abandon()
        self._reap()

    def strike(self) -> None:
        """Kill the process and all below it, without waiting."""
        self._handle.kill_tree()

    def stop(self) -> None:
        """Let the tool close, then end what is left."""
        with contextlib.suppress(OSError):
            self._channel.shut()
        with contextlib.suppress(Exception):
            while True:
                self._channel.receive(1.0)
        self.kill()

    def abandon(self) -> None:
        """Drop the handles; the process goes on."""
        self._channel.close()
        self._handle.close()

    def _reap(self) -> None:
        """Wait for the guardian, which ends when nothing is left below it."""
        if self._guardian is None:
            return
        deadline = time.monotonic() + 1.0
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(self._guardian, os.WNOHANG)[0] == 0:
                if time.monotonic() > deadline:
                    processes.kill_tree(self._guardian)
                time.sleep(0.001)


class ProcessRunner:
    """Workers of one tool: one from the start, up to `limit` when calls run at the same time.

    grace: seconds a call gets beyond the tool's timeout, for a tool that ends its calls at it by itself.
    """

    def __init__(self, tool: BaseTool, limit: int, grace: float = 0.0) -> None:
        self._tool = tool
        self._limit = limit
        self._grace = grace
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._free = threading.Condition()
        self._closed = True
        self._pickled = _pickled(tool)
        _living.add(self)

    def open(self) -> None:
        """Start the first worker and wait for the tool's `open()`. Raises ToolOpenError."""
        self._closed = False
        shared.acquire()
        try:
            self._give_back(self._take())
        except ToolOpenError:
            self.close()
            raise

    def run(self, params: dict[str, Any]) -> ToolResult:
        """One call in a free worker; waiting for one is not on the clock of the call."""
        answer = self._ask({"params": params})
        return answer if isinstance(answer, ToolResult) else ToolResult(**answer)

    def run_batch(self, batch: list[dict[str, Any]]) -> list[ToolResult] | None:
        """Many calls in one worker; None when they failed together, and can run one by one."""
        answer = self._ask({"batch": batch})
        if isinstance(answer, ToolResult):
            return [answer for _ in batch] if self._closed else None
        return answer and [ToolResult(**item) for item in answer]

    def _ask(self, what: dict[str, Any]) -> Any:
        """What a worker answers to a request, or the ToolResult that says why it did not."""
        limit = self._tool.timeout
        try:
            worker = self._take()
        except ToolOpenError as error:
            return _closed() if self._closed else _not_opened(error)
        try:
            answer = worker.ask(what, limit + self._grace)
        except TimeoutError:
            self._replace(worker)
            return timeout_result(limit)
        except ChannelClosed:
            self._replace(worker)
            return _closed() if self._closed else _died()
        except ValueError as error:
            self._give_back(worker)
            return ToolResult.failure(ErrorCode.INVALID_ARGUMENT, f"the arguments are too large: {error}")
        except BaseException:  # the caller was interrupted; what the worker does now is nobody's
            self._replace(worker)
            raise
        self._give_back(worker)
        return answer

    def close(self) -> None:
        """End all workers; calls that run end as CANCELLED."""
        with self._free:
            if self._closed:
                return
            self._closed = True
            idle, busy = list(self._idle), list(self._busy)
            self._idle.clear()
            self._free.notify_all()
        for worker in busy:
            worker.strike()  # its caller sees the channel end and cleans up
        for worker in idle:
            worker.stop()
        with self._free:
            self._free.wait_for(lambda: not self._busy, timeout=5)
        shared.release()

    def forget(self) -> None:
        """In a forked child: the workers belong to the parent, and the next call starts another."""
        for worker in {*self._idle, *self._busy}:
            worker.abandon()
        self._idle.clear()
        self._busy.clear()
        self._free = threading.Condition()
        if not self._closed:
            shared.acquire()

    def _take(self) -> Worker:
        """A worker that is ready. Raises ToolOpenError, also when the runner is closed."""
        with self._free:
            self._free.wait_for(lambda: self._closed or self._idle or len(self._busy) < self._limit)
            if self._closed:
                raise ToolOpenError("the tool box is closed")
            worker = self._idle.pop() if self._idle else self._start()
            if not worker.alive():  # something outside ended it between two calls
                worker.kill()
                worker = self._start()
            self._busy.add(worker)
        try:
            worker.wait_until_ready()
        except ToolOpenError:
            self._drop(worker)
            raise
        return worker

    def _give_back(self, worker: Worker) -> None:
        with self._free:
            self._busy.discard(worker)
            if not self._closed:
                self._idle.append(worker)
                self._free.notify()
                return
            self._free.notify_all()
        worker.kill()

    def _drop(self, worker: Worker) -> None:
        worker.kill()
        with self._free:
            self._busy.discard(worker)
            self._free.notify_all()

    def _replace(self, worker: Worker) -> None:
        """Kill a worker and start another, which opens the tool while nobody waits."""
        self._drop(worker)
        with self._free:
            if not self._closed and not self._idle and len(self._busy) < self._limit:
                with contextlib.suppress(ToolOpenError):  # then the next call tries, and reports it
                    self._idle.append(self._start())
                    self._free.notify()

    def _fork_in_nursery(self, descriptor: int) -> int | None:
        """The process id, or None for a tool the nursery cannot import (a closure, a class of a script)."""
        for _ in range(2):
            if self._pickled is None:
                break
            try:
                return shared.get().fork(self._pickled, descriptor)
            except NurseryGoneError as error:
                _log.debug("%s; trying another", error)
            except NurseryError as error:
                _log.debug("%s is forked from this process: %s", self._tool.name, error)
                self._pickled = None
        return None

    def _start(self) -> Worker:
        """A new worker, whose tool opens meanwhile. Raises ToolOpenError when no process can be had."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                pid = self._fork_in_nursery(theirs.fileno())
                if pid is not None:
                    return Worker(pid, Channel(ours))
                guardian, pid = _fork_here(theirs.fileno(), self._tool)
                return Worker(pid, Channel(ours), guardian)
        except OSError as error:
            ours.close()
            raise ToolOpenError(f"no process can be started for it: {error}") from error


def _fork_here(descriptor: int, tool: BaseTool) -> tuple[int, int]:
    """The process ids of a guardian, which is our child, and of the worker below it."""
    read, write = os.pipe()
    with open(read, "rb") as report:
        try:
            guardian = os.fork()
            if guardian == 0:
                guard(descriptor, write, tool)
        finally:
            os.close(write)
        pid = int.from_bytes(report.read(8), "big")
    if pid == 0:
        os.waitpid(guardian, 0)
        raise OSError("the guardian could not fork")
    return guardian, pid


_living: weakref.WeakSet[ProcessRunner] = weakref.WeakSet()


def _forget_all() -> None:
    for runner in list(_living):
        runner.forget()


os.register_at_fork(after_in_child=_forget_all)


def _pickled(tool: BaseTool) -> bytes | None:
    try:
        return pickle.dumps(tool)
    except Exception:
        return None


def _closed() -> ToolResult:
    return ToolResult.failure(ErrorCode.CANCELLED, "the tool box was closed")


def _not_opened(error: ToolOpenError) -> ToolResult:
    return ToolResult.failure(ErrorCode.EXECUTION_ERROR, f"the tool could not be opened: {error}")


def _died() -> ToolResult:
    return ToolResult.failure(ErrorCode.EXECUTION_ERROR, "the tool's process ended before it answered")
