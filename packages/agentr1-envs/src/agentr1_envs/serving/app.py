"""The WebSocket application of an environment.

    GET /health           {"status": "ok", "env_id", "sessions", "max_sessions"}
    WebSocket /session    one connection plays one session; every message is a JSON text (see `wire`)

The first message begins or takes up a session; then each thing asked is answered, in order (see `calls`):

    {"do": "open", "protocol": 1, "env_id": id, "render_mode": m}   {"number": 0, "result": {"session": s, ...}}
    {"do": "resume", "session": s}                                  {"number": 0, "result": {}}
    {"number": n, "do": ...}                                        {"number": n, "result": {...}}, or "error"
    {"do": "close"}                                                 {"number": null, "result": {}}; the session is over

With a token the handshake must have `Authorization: Bearer TOKEN`, or its answer is 403. So it is with an `Origin`:
that comes from a web page, which could otherwise play whatever listens on the machine of who looks at it.
"""

import asyncio
import contextlib
import hmac
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse

from agentr1_envs.errors import EnvsError, RemoteError, WireError
from agentr1_envs.serving.calls import refusal
from agentr1_envs.serving.limits import ServingLimits
from agentr1_envs.serving.session import MakeEnv, Session
from agentr1_envs.serving.sessions import Sessions
from agentr1_envs.wire import dumps, loads
from agentr1_envs.wire_protocol import ENDED, PROTOCOL, without_module

GRACE_SECONDS = 5.0
"""How long the end of the server waits for environments to close."""
_FIRST_MESSAGE_SECONDS = 30.0
_HANG_UP_SECONDS = 1.0
_GONE = (WebSocketDisconnect, RuntimeError)
"""What a connection that has ended raises: the first when that is noticed, then the other."""


@dataclass(frozen=True)
class Served:
    """What a server offers."""

    env_id: str
    settings: str
    """A digest of what the environments are made with; a client notices by it that a server came back as another."""
    make_env: MakeEnv
    token: str = ""
    """What a client must bring; empty lets everyone in."""


def environment_app(
    served: Served, limits: ServingLimits | None = None, on_stop: Callable[[int], None] = lambda hung: None
) -> FastAPI:
    """The application of an environment.

    Args:
        served: the environment, and who may play it.
        limits: what the server takes on.
        on_stop: told at the end how many environments hang.
    """
    limits = limits or ServingLimits()
    told = {"env_id": served.env_id, "settings": served.settings, "max_message_bytes": limits.max_message_bytes}
    sessions = Sessions(served.make_env, limits, told)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        watching = asyncio.create_task(sessions.watch())
        yield
        watching.cancel()
        on_stop(await sessions.close(GRACE_SECONDS))

    async def health() -> JSONResponse:
        count = {"sessions": len(sessions), "max_sessions": limits.max_sessions}
        return JSONResponse({"status": "ok", "env_id": served.env_id, **count})

    async def session(socket: WebSocket) -> None:
        if not _is_let_in(socket, served.token):
            await socket.close()  # status 403
            return
        await socket.accept()
        await _Talk(socket, served.env_id, sessions).run()

    app = FastAPI(title="agentr1-envs", openapi_url=None, lifespan=lifespan)
    app.add_api_route("/health", health, methods=["GET"])
    app.add_api_websocket_route("/session", session)
    return app


class _Talk:
    """One connection."""

    def __init__(self, socket: WebSocket, env_id: str, sessions: Sessions) -> None:
        self._socket, self._env_id, self._sessions = socket, env_id, sessions

    async def run(self) -> None:
        """Talk until the connection or the session ends."""
        session: Session | None = None
        try:
            session = await self._begin(await self._first())
            while session is not None and not session.ended:
                await self._answer(session, await self._receive())
            await self._hang_up(session.ended if session else "there is no session")
        except WebSocketDisconnect:
            return
        except EnvsError as error:
            await self._send(refusal(error))
            await self._hang_up("see the message before")
        finally:
            if session is not None:
                session.leave(self._hang_up)
                if session.ended:
                    await self._sessions.end(session, session.ended)

    async def _first(self) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(_FIRST_MESSAGE_SECONDS):
                return await self._receive()
        except TimeoutError:
            raise WireError(f"There was no message within {_FIRST_MESSAGE_SECONDS:g} s.") from None

    async def _begin(self, first: Mapping[str, Any]) -> Session | None:
        match first:
            case {"do": "open", "protocol": protocol, "env_id": str() as env_id, "render_mode": str() | None as mode}:
                self._check(protocol, env_id)
                return await self._open(mode)
            case {"do": "resume", "session": session_id}:
                session = self._sessions.find(session_id)
                await session.take(self._hang_up)
                await self._send(dumps({"number": 0, "result": {}}))
                return session
            case _:
                raise WireError(f"The first message must open or resume a session, not: {str(dict(first))[:200]}.")

    async def _open(self, render_mode: str | None) -> Session | None:
        session, said = await self._sessions.open(render_mode)
        try:
            await self._socket.send_text(said)
        except _GONE:  # the client never heard its id
            await self._sessions.end(session, "its client left before it began")
            raise WebSocketDisconnect from None
        if not session.is_open:
            return None
        await session.take(self._hang_up)
        return session

    async def _answer(self, session: Session, asked: Mapping[str, Any]) -> None:
        closing = asked.get("do") == "close"
        if closing:
            session.leave(self._hang_up)  # the answer goes first
            await self._sessions.end(session, "its client closed it")
        said = dumps({"number": None, "result": {}}) if closing else await session.ask(asked)
        await self._send(said)

    async def _send(self, text: str) -> None:
        """Send, if the client is still there; whether it is shows when the next message is read."""
        with contextlib.suppress(*_GONE):
            await self._socket.send_text(text)

    async def _receive(self) -> Mapping[str, Any]:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1006))
        asked = loads(message.get("text") or "null")
        if not isinstance(asked, dict):
            raise WireError("A message must be a JSON object, as text.")
        return cast("dict[str, Any]", asked)

    def _check(self, protocol: object, env_id: str) -> None:
        if protocol != PROTOCOL:
            raise RemoteError(f"The server speaks protocol {PROTOCOL}, its client {protocol!r}: give both one version.")
        if without_module(env_id) != without_module(self._env_id):
            raise RemoteError(f"The server serves {self._env_id!r}, not {env_id!r}.")

    async def _hang_up(self, reason: str) -> None:
        with contextlib.suppress(*_GONE, TimeoutError):
            async with asyncio.timeout(_HANG_UP_SECONDS):  # a client that reads nothing keeps nobody waiting
                await self._socket.close(ENDED, reason[:100])


def _is_let_in(socket: WebSocket, token: str) -> bool:
    if "origin" in socket.headers:
        return False
    given = socket.headers.get("authorization", "")
    return not token or hmac.compare_digest(given.encode(), f"Bearer {token}".encode())
