"""Sessions: all sessions of a server, their limits, and the end of those that nobody plays any more."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from agentr1_envs.errors import RemoteError, SessionLostError
from agentr1_envs.serving.limits import ServingLimits
from agentr1_envs.serving.session import MakeEnv, Session

_REMEMBERED = 4096


class Sessions:
    """Opens, finds and ends sessions. All methods are for the event loop's thread."""

    def __init__(self, make_env: MakeEnv, limits: ServingLimits, told: Mapping[str, Any]) -> None:
        self._make_env, self._limits, self._told = make_env, limits, told
        self._open: dict[str, Session] = {}
        self._over: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, render_mode: str | None) -> tuple[Session, str]:
        """A new session and its first answer; it `is_open` unless that is an error.

        Raises:
            RemoteError: there are `max_sessions` already.
        """
        if len(self._open) >= self._limits.max_sessions:
            raise RemoteError(
                f"The server has {len(self._open)} sessions and takes no more: close environments not in use, "
                f"wait for idle ones to end ({self._limits.idle_seconds:g} s), or serve with a larger --max-sessions."
            )
        session = Session(self._make_env, self._limits.step_seconds, self._told)
        self._open[session.id] = session
        said = await session.open(render_mode)
        if not session.is_open or session.ended:
            await self.end(session, session.ended or "its environment could not be made")
        return session, said

    def find(self, session_id: object) -> Session:
        """The session of this id.

        Raises:
            SessionLostError: there is none, or none any more.
        """
        session = self._open.get(session_id) if isinstance(session_id, str) else None
        if session is None or session.ended:
            known = session.ended if session else self._over.get(str(session_id), "")
            reason = f"is over: {known}" if known else "is not known to this server: it has been started anew since"
            raise SessionLostError(f"The session {reason}.")
        return session

    async def end(self, session: Session, reason: str) -> None:
        """End a session; its environment is closed as soon as its thread is free."""
        if self._open.pop(session.id, None) is None:
            return
        self._over[session.id] = reason
        while len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)
        await session.end(reason)

    async def watch(self) -> None:
        """End idle sessions, for as long as the server runs."""
        limit = self._limits.idle_seconds
        while True:
            await asyncio.sleep(min(limit / 4, 5.0))
            for session in list(self._open.values()):
                if session.ended or session.idle_seconds > limit:
                    await self.end(
                        session, session.ended or f"nobody asked anything for {limit:g} s (the server's --idle-seconds)"
                    )

    async def close(self, seconds: float) -> int:
        """End all sessions. Returns how many environments were not closed within `seconds`: they hang."""
        sessions = list(self._open.values())
        for session in sessions:
            await self.end(session, "the server is stopping")
        until = time.monotonic() + seconds
        closed = [session.join(max(0.0, until - time.monotonic())) for session in sessions]
        return closed.count(False)
