"""Gate: what a request must pass before an application sees it: a limit on its body and on the requests at work.

An ASGI middleware. A refusal is a tool result like any other (`RATE_LIMITED`, `INVALID_ARGUMENT`), so that a client
needs no second way to read an answer. It knows neither tools nor users: there is no authentication here.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, fields
from typing import Any

from fastapi import Response

from agentr1_tools.errors import ErrorCode, ToolConfigError
from agentr1_tools.result import ToolResult
from agentr1_tools.serving.answers import as_response

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class ServingLimits:
    """What a server takes on."""

    max_body_bytes: int = 1024 * 1024
    """Longer request bodies are refused with status 413."""
    max_requests: int = 256
    """POST requests at work at the same time; one more is refused with status 429."""
    max_batch: int = 64
    """Calls or queries of one request."""
    body_seconds: float = 30.0
    """A body that takes longer to arrive is refused with status 408."""

    def __post_init__(self) -> None:
        """Raises ToolConfigError for a limit that would let nothing through."""
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ToolConfigError(f"{field.name} is {getattr(self, field.name)!r}; it must be above 0")


class Gate:
    """Counts and reads the POST requests of an application; everything else, such as /health, passes."""

    def __init__(self, app: App, limits: ServingLimits) -> None:
        self._app = app
        self._limits = limits
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        if self.running >= self._limits.max_requests:
            problem = f"{self.running} requests are at work, and the server takes no more; try again later"
            await _refusal(429, ErrorCode.RATE_LIMITED, problem)(scope, receive, send)
            return
        self.running += 1
        try:
            await self._admit(scope, receive, send)
        finally:
            self.running -= 1

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                body = await self._read(scope, receive)
        except TimeoutError:
            problem = f"the body did not arrive within {self._limits.body_seconds:g} s"
            await _refusal(408, ErrorCode.NETWORK_ERROR, problem)(scope, receive, send)
            return
        except ConnectionError:  # the client left before it had sent all of it
            return
        if body is None:
            problem = f"the body is longer than the {self._limits.max_body_bytes} bytes the server takes"
            await _refusal(413, ErrorCode.INVALID_ARGUMENT, problem)(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None for one that is too long. Raises ConnectionError."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._limits.max_body_bytes:
            return None
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError
            body += message.get("body", b"")
            if len(body) > self._limits.max_body_bytes:
                return None
            if not message.get("more_body", False):
                return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that hands out the body that was read, and then what the connection says."""
    waiting = [body]

    async def next_message() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return next_message


def _refusal(status: int, code: ErrorCode, problem: str) -> Response:
    return as_response(ToolResult.failure(code, problem), status)
