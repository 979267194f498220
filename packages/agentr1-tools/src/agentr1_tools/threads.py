"""Daemon threads and one background event loop, shared by all tool boxes of a process.

The standard executor joins its threads when the interpreter ends, so one hung tool would keep a finished run alive;
these threads do not. Both start when first used and start anew in a forked child.
"""

import asyncio
import atexit
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple[Callable[[], Any], "Future[Any]"]
_IDLE_SECONDS = 10.0


class DaemonPool:
    """Runs jobs on daemon threads, started on demand up to `limit` and ended after ten idle seconds."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Forget all threads: after a fork the child has none of them."""
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._unfinished = 0

    def submit(self, job: Callable[[], T]) -> "Future[T]":
        """Run the job on some thread; beyond `limit` jobs at once it waits for one."""
        future: Future[T] = Future()
        with self._lock:
            self._jobs.put((job, future))
            self._unfinished += 1
            if self._threads < min(self._unfinished, self._limit):
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            try:
                job, future = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._threads -= 1
                        return
                continue
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as error:
                    future.set_exception(error)
            del job, future
            with self._lock:
                self._unfinished -= 1


class BackgroundLoop:
    """One event loop on a daemon thread, so that an async tool keeps one loop whoever calls it."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.stop)

    def get(self) -> asyncio.AbstractEventLoop:
        """The running loop; started when first asked for."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="agentr1-tools-loop", daemon=True)
                self._thread.start()
            return self._loop

    def stop(self) -> None:
        """Stop and close the loop, unless a job blocks it; then it ends with the process."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=1)
            if not thread.is_alive():
                loop.close()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None


# Two pools: a caller waits for an executor, so sharing one pool could leave no thread to wait for.
callers = DaemonPool("agentr1-tools-call", limit=256)
executors = DaemonPool("agentr1-tools-run", limit=256)
background = BackgroundLoop()
