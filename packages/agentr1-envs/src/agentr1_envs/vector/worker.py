"""A daemon thread that owns one environment: makes it, calls it, closes it, one call after another.

A call that hangs costs this thread alone: neither its neighbours nor the end of the process wait for it. Python cannot
stop it, so whoever waits gives the thread up and starts another. Nothing here knows of episodes or time limits.
"""

import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium

AnyEnv = gymnasium.Env[Any, Any]
EnvCall = Callable[[AnyEnv], Any]
_Calls = queue.SimpleQueue[tuple[object, EnvCall] | None]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a call came to: a value, or what it raised."""

    index: int
    """Whose call it was, as told to the worker."""
    ticket: object
    """Which call it was, as `EnvWorker.call` told."""
    value: Any = None
    error: BaseException | None = None


class EnvWorker:
    """Runs calls on its environment in order; each puts one `Outcome` into the queue it was given."""

    def __init__(self, index: int, make: Callable[[], AnyEnv], outcomes: "queue.SimpleQueue[Outcome]") -> None:
        """Start the thread; the environment is made by the first call, and by the next one where that failed."""
        self._calls: _Calls = queue.SimpleQueue()
        arguments = (index, make, self._calls, outcomes)
        self._thread = threading.Thread(target=_serve, args=arguments, name=f"agentr1-vector-{index}", daemon=True)
        self._thread.start()

    def call(self, function: EnvCall) -> object:
        """Run `function(env)` once the calls before it are over; returns the ticket of its outcome."""
        ticket = object()
        self._calls.put((ticket, function))
        return ticket

    def close(self) -> None:
        """Close the environment and end the thread once its running call is over; does not wait."""
        self._calls.put(None)

    def join(self, timeout: float) -> None:
        """Wait for the end of the thread, at most `timeout` seconds."""
        self._thread.join(timeout)


def _serve(index: int, make: Callable[[], AnyEnv], calls: "_Calls", outcomes: "queue.SimpleQueue[Outcome]") -> None:
    env: AnyEnv | None = None
    while (given := calls.get()) is not None:
        ticket, function = given
        try:
            env = make() if env is None else env
            outcome = Outcome(index, ticket, function(env))
        except BaseException as error:  # a SystemExit of an environment ends its episode, not its thread
            outcome = Outcome(index, ticket, error=error)
        outcomes.put(outcome)
        del given, ticket, function, outcome
    if env is not None:
        with contextlib.suppress(Exception):  # nobody is left to tell
            env.close()
