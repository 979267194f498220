"""Session: one environment, and the exchange with the one client that plays it.

The client numbers what it asks. An answer is kept until the next number, so that a client whose connection broke asks
the same number again and gets the same answer: nothing is done twice, and nothing is lost. Connections are the
application's business; a session outlives them.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agentr1_envs.errors import EnvTimeoutError, SettingError, WireError
from agentr1_envs.serving.calls import AnyEnv, answer, describe, refusal
from agentr1_envs.serving.worker import Worker
from agentr1_envs.wire import dumps

MakeEnv = Callable[[str | None], AnyEnv]
"""Makes an environment with the render mode given."""
HangUp = Callable[[str], Awaitable[None]]
"""Ends a connection, for the reason given."""


class Session:
    """An environment in its own thread. All methods are for the event loop's thread."""

    def __init__(self, make_env: MakeEnv, step_seconds: float, told: Mapping[str, Any]) -> None:
        """Nothing is made yet: see `open`.

        Args:
            make_env: makes the environment.
            step_seconds: what a call of it may take.
            told: what the first answer tells of the server.
        """
        self.id = secrets.token_urlsafe(16)
        self.ended = ""
        """Why it is over; empty while it is not."""
        self._make_env, self._step_seconds, self._told = make_env, step_seconds, told
        self._worker = Worker(f"agentr1-session-{self.id[:6]}")
        self._env: AnyEnv | None = None
        self._number = 0
        self._answer: asyncio.Task[str] | None = None
        self._hang_up: HangUp | None = None
        self._used = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        """Seconds since something was asked or answered; 0 while the environment is at work."""
        return 0.0 if self._at_work else time.monotonic() - self._used

    async def open(self, render_mode: str | None) -> str:
        """Make the environment. Returns its description as an answer, or what went wrong."""
        if render_mode == "human":
            return refusal(SettingError("render_mode='human' would show the episode at the server; use 'ansi'."))

        def make() -> str:
            try:
                self._env = self._make_env(render_mode)
                return dumps({"number": 0, "result": {**self._told, "session": self.id, **describe(self._env)}})
            except Exception as error:
                return refusal(error, 0)

        self._answer = asyncio.create_task(self._timed(make, 0))
        return await asyncio.shield(self._answer)

    @property
    def is_open(self) -> bool:
        """True once it has an environment."""
        return self._env is not None

    async def ask(self, asked: Mapping[str, Any]) -> str:
        """The answer to what is asked; what goes wrong is an answer too.

        Asked again under the same number, also while the environment is still at work, it is the same answer.
        """
        number = asked.get("number")
        if number != self._number or self._answer is None:
            if number != self._number + 1:
                problem = f"Number {number!r} does not follow {self._number}: each thing asked counts one up."
                return refusal(WireError(problem), number if isinstance(number, int) else None)
            self._number += 1
            self._answer = asyncio.create_task(self._timed(lambda: answer(self._playing, asked), self._number))
        return await asyncio.shield(self._answer)

    async def take(self, hang_up: HangUp) -> None:
        """The client is at a new connection; the one before, if it is still there, is hung up."""
        before, self._hang_up = self._hang_up, hang_up
        self._used = time.monotonic()
        if before is not None:
            await before("the session was taken up at another connection")

    def leave(self, hang_up: HangUp) -> None:
        """A connection is gone."""
        if self._hang_up == hang_up:
            self._hang_up = None

    async def end(self, reason: str) -> None:
        """Hang up, and close the environment after the call it may be at; does not wait for that."""
        self.ended = reason
        self._worker.finish(self._close)
        if self._hang_up is not None:
            await self._hang_up(reason)

    def join(self, seconds: float) -> bool:
        """Wait until the environment is closed; False when it is not within `seconds`."""
        return self._worker.join(seconds)

    @property
    def _at_work(self) -> bool:
        return self._answer is not None and not self._answer.done()

    @property
    def _playing(self) -> AnyEnv:
        assert self._env is not None
        return self._env

    async def _timed(self, work: Callable[[], str], number: int) -> str:
        try:
            return await self._worker.call(work, self._step_seconds)
        except TimeoutError:
            self.ended = f"a call of its environment took longer than {self._step_seconds:g} s"
            problem = f"The environment gave no answer within {self._step_seconds:g} s, the server's --step-seconds"
            return refusal(EnvTimeoutError(f"{problem}; the session is over."), number, final=True)
        finally:
            self._used = time.monotonic()

    def _close(self) -> None:
        if self._env is not None:
            self._env.close()
