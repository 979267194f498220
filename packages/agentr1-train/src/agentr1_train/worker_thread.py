"""A daemon thread that runs one call after another and answers an event loop.

Environments and the sampler each live in one: a call that hangs costs its own thread, never the loop, and never keeps
the process from ending. It does not stop a running call: Python cannot; the caller abandons the thread instead.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

_Call = tuple[Callable[..., Any], tuple[Any, ...], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class WorkerThread:
    """Runs calls in order. After a time-out it must be closed: the late call still occupies it."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[_Call | Callable[[], Any] | None] = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(self._calls,), name=name, daemon=True).start()

    async def call(self, function: Callable[..., Any], *args: Any, timeout: float | None = None) -> Any:
        """Run ``function(*args)`` in the thread and return its result.

        Raises:
            TimeoutError: no answer within ``timeout`` seconds; the call goes on unheard.
            Exception: whatever the function raised. What is no ``Exception`` (``SystemExit``) becomes a RuntimeError.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._calls.put((function, args, loop, future))
        await asyncio.wait({future}, timeout=timeout)
        if not future.done():
            future.cancel()
            raise TimeoutError(f"no answer within {timeout:g} s")
        return future.result()

    def close(self, last: Callable[[], Any] | None = None) -> None:
        """End the thread once its running call is over, after ``last``; does not wait."""
        if last is not None:
            self._calls.put(last)
        self._calls.put(None)


def _serve(calls: "queue.SimpleQueue[_Call | Callable[[], Any] | None]") -> None:
    while (call := calls.get()) is not None:
        if callable(call):
            with contextlib.suppress(Exception):  # closing what was abandoned: nobody is left to tell
                call()
            continue
        function, args, loop, future = call
        result: Any = None
        failure: Exception | None = None
        try:
            result = function(*args)
        except BaseException as error:
            failure = _as_exception(error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, future, result, failure)
        del call, function, args, loop, future, result, failure


def _as_exception(error: BaseException) -> Exception:
    # A future refuses StopIteration, and a SystemExit would end the loop with all other episodes in it.
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def _settle(future: "asyncio.Future[Any]", result: Any, failure: Exception | None) -> None:
    if future.done():
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(result)
