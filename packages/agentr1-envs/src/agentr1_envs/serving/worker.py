"""A daemon thread of its own for each environment: one that hangs holds up no other, nor the end of the server.

It does not stop a running call, since Python cannot: whoever waits gives up, and the thread ends when the call returns.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable

Work = Callable[[], str]


class Worker:
    """Runs calls one after another; none of them may raise."""

    def __init__(self, name: str) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def call(self, work: Work, seconds: float) -> str:
        """What `work` returns, as soon as the thread has done it.

        Raises:
            TimeoutError: it took longer than `seconds`; the thread goes on with it.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[str] = loop.create_future()

        def run() -> None:
            result = work()
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(lambda: None if outcome.done() else outcome.set_result(result))

        self._waiting.put(run)
        async with asyncio.timeout(seconds):
            return await outcome

    def finish(self, last: Callable[[], object]) -> None:
        """Have the thread end after the calls it has, and after `last`, whose errors nobody hears. Does not wait."""

        def run() -> None:
            with contextlib.suppress(Exception):
                last()

        self._waiting.put(run)
        self._waiting.put(None)

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end; False when it has not within `seconds`."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            work()
