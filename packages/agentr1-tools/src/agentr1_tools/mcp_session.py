"""McpSession: one session with one MCP server (Model Context Protocol), kept on the background loop.

The server is a process that is started here and spoken to over its standard streams, or an address (streamable HTTP). A
task of its own holds the connection, so that any thread may ask. What ends with the server is the session: calls under
way fail with NETWORK_ERROR, and the next one connects anew. The only door of this package to `mcp`.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED, INVALID_PARAMS, REQUEST_TIMEOUT, CallToolResult, Tool
from pydantic import ValidationError

from agentr1_tools.errors import ErrorCode, ToolConfigError, ToolError
from agentr1_tools.http_client import is_local
from agentr1_tools.threads import background

CONNECT_SECONDS = 60.0
CLOSE_SECONDS = 15.0
_TAIL_BYTES = 2000
T = TypeVar("T")


@dataclass(frozen=True)
class McpAddress:
    """Where a server is: a command that starts it, or a URL.

    command: program and arguments. env: variables for it, beside the few that are harmless to inherit (PATH, HOME).
    url: endpoint of a server that speaks streamable HTTP. headers: sent with every request, for authorization.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    env: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(
        command: Sequence[str] | None,
        url: str | None,
        env: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> "McpAddress":
        """Raises ToolConfigError unless it is one of the two, with settings that have an effect."""
        if bool(command) == bool(url):
            raise ToolConfigError(
                'mcp: give either command= (such as ["python", "server.py"]) or url= (such as http://127.0.0.1:8000/mcp)'
            )
        if isinstance(command, str):
            raise ToolConfigError(f"mcp: command is {command!r}; give a list of program and arguments")
        if url and env:
            raise ToolConfigError("mcp: env= is for a server that command= starts")
        if command and headers:
            raise ToolConfigError("mcp: headers= is for a server at a url=")
        return McpAddress(
            tuple(command or ()), url or "", tuple(sorted((env or {}).items())), tuple(sorted((headers or {}).items()))
        )

    def __str__(self) -> str:
        """The server's name in a message, without what may be secret."""
        return self.url or " ".join(self.command)


def session_for(address: McpAddress) -> "McpSession":
    """This process's session with a server: one, however many tools were made of it."""
    return _sessions.setdefault(address, McpSession(address))


class McpSession:
    """A session that several tools share: the first to open it connects, the last to close it ends it."""

    def __init__(self, address: McpAddress) -> None:
        self.address = address
        self._users = 0
        self._lock = threading.Lock()
        self._connection: _Connection | None = None

    def open(self) -> None:
        """Connect, for one user more. Raises ToolError(NETWORK_ERROR) saying what the server said."""
        with self._lock:
            self._users += 1
            try:
                _on_loop(self._connected, CONNECT_SECONDS)
            except BaseException:
                self._leave()
                raise

    def close(self) -> None:
        """One user less; the last one ends the session, and the process that was started for it."""
        with self._lock:
            self._leave()

    def _leave(self) -> None:
        self._users -= 1
        connection = self._connection
        if self._users == 0 and connection is not None and connection.loop is background.get():
            self._connection = None
            with contextlib.suppress(ToolError):  # what has not ended by then is left to end by itself
                _on_loop(connection.end, CLOSE_SECONDS)

    def list_tools(self) -> list[Tool]:
        """All tools of the server. Raises ToolError(NETWORK_ERROR)."""
        return _on_loop(self._list_tools, CONNECT_SECONDS)

    async def call(self, name: str, arguments: dict[str, Any], seconds: float) -> CallToolResult:
        """Have the server run a tool. May be awaited on any loop.

        Raises ToolError: TIMEOUT, NETWORK_ERROR for a server that is gone or ends meanwhile, INVALID_ARGUMENT,
        INVALID_RESULT for an answer against the tool's own output schema, and EXECUTION_ERROR for any other refusal.
        """
        job = asyncio.run_coroutine_threadsafe(self._call(name, arguments, seconds), background.get())
        return await asyncio.wrap_future(job)

    async def _call(self, name: str, arguments: dict[str, Any], seconds: float) -> CallToolResult:
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(seconds):
                connection = await self._connected()
                return await connection.run(connection.client.call_tool(name, arguments))
        except ToolError:
            raise
        except TimeoutError:
            raise ToolError(ErrorCode.TIMEOUT, f"the tool gave no answer within {seconds:g} s") from None
        except MCPError as error:
            if connection is not None and _ends_session(error):
                self._drop(connection)
                raise self._gone(error) from None
            raise ToolError(_code(error), error.message) from None
        except ValidationError as error:
            raise ToolError(ErrorCode.INVALID_RESULT, f"the server's answer is not valid: {error}") from None
        except RuntimeError as error:  # how the SDK reports a result against the tool's output schema
            raise ToolError(ErrorCode.INVALID_RESULT, str(error)) from None

    async def _list_tools(self) -> list[Tool]:
        connection = await self._connected()
        tools: list[Tool] = []
        cursor: str | None = None
        try:
            while True:
                page = await connection.run(connection.client.list_tools(cursor=cursor))
                tools += page.tools
                cursor = page.next_cursor
                if cursor is None:
                    return tools
        except MCPError as error:
            raise self._gone(error) from None

    async def _connected(self) -> "_Connection":
        """The connection, made if there is none that lives. Runs on the background loop only."""
        connection = self._connection
        if connection is None or connection.loop is not asyncio.get_running_loop() or connection.ended:
            connection = self._connection = _Connection(self.address)
        await connection.ready()
        return connection

    def _drop(self, connection: "_Connection") -> None:
        """Forget a connection that broke, and let it end by itself; the next call makes another."""
        if self._connection is connection:
            self._connection = None
        connection.closing.set()

    def _gone(self, problem: object) -> ToolError:
        return ToolError(ErrorCode.NETWORK_ERROR, f"the MCP server {self.address} cannot be used: {problem}")


_sessions: WeakValueDictionary[McpAddress, McpSession] = WeakValueDictionary()


class _Connection:
    """A task that enters the SDK's client, waits until it may leave, and leaves: the SDK wants both in one task."""

    def __init__(self, address: McpAddress) -> None:
        self.loop = asyncio.get_running_loop()
        self.closing = asyncio.Event()
        self._address = address
        self._client: asyncio.Future[Client] = self.loop.create_future()
        self._said = _Tail()
        self._task = self.loop.create_task(self._hold(), name=f"mcp {address}")
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())  # looked at, if by nobody else

    @property
    def client(self) -> Client:
        """The client; only once `ready` has returned."""
        return self._client.result()

    @property
    def ended(self) -> bool:
        """True once it is of no more use."""
        return self._task.done() or self.closing.is_set()

    async def ready(self) -> None:
        """Wait until it is connected. Raises ToolError(NETWORK_ERROR) when it cannot be."""
        await asyncio.wait({self._client, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not self._client.done():
            raise self._failure()

    async def run(self, request: Coroutine[Any, Any, T]) -> T:
        """Await a request, or the end of the connection: then ToolError(NETWORK_ERROR)."""
        job = self.loop.create_task(request)
        try:
            await asyncio.wait({job, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                return job.result()
            raise self._failure()
        finally:
            job.cancel()

    async def end(self) -> None:
        """Leave the client, or stop trying to connect it, and wait until that is done."""
        self.closing.set()
        if not self._client.done():
            self._task.cancel()
        await asyncio.wait({self._task})

    def _failure(self) -> ToolError:
        error = None if self._task.cancelled() else self._task.exception()
        while isinstance(error, BaseExceptionGroup):  # what the task groups inside the SDK wrapped
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        said = self._said.text()
        problem = f"{type(error).__name__}: {error}" if error is not None else "the connection ended"
        last_words = f"; it said last: {said}" if said else ""
        return ToolError(
            ErrorCode.NETWORK_ERROR, f"the MCP server {self._address} cannot be used: {problem}{last_words}"
        )

    async def _hold(self) -> None:
        async with AsyncExitStack() as stack:
            transport = await self._transport(stack)
            client = await stack.enter_async_context(Client(transport, cache=None))
            self._client.set_result(client)
            await self.closing.wait()

    async def _transport(self, stack: AsyncExitStack) -> AbstractAsyncContextManager[Any]:
        if self._address.url:
            limits = httpx2.Timeout(30.0, read=300.0)  # a server may hold a stream open; a call has a limit of its own
            http = httpx2.AsyncClient(
                headers=dict(self._address.headers), timeout=limits, trust_env=not is_local(self._address.url)
            )
            return streamable_http_client(self._address.url, http_client=await stack.enter_async_context(http))
        program, *arguments = self._address.command
        parameters = StdioServerParameters(command=program, args=arguments, env=dict(self._address.env))
        write = await self._said.listen(stack)
        return stdio_client(parameters, errlog=write)


class _Tail(asyncio.Protocol):
    """Reads a server's stderr to the end, so that it never blocks, and keeps the last of it for a message."""

    def __init__(self) -> None:
        self._kept = b""

    def data_received(self, data: bytes) -> None:
        """asyncio's callback."""
        self._kept = (self._kept + data)[-_TAIL_BYTES:]

    def text(self) -> str:
        """The last line that is not empty."""
        lines = [line.strip() for line in self._kept.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][-500:] if lines else ""

    async def listen(self, stack: AsyncExitStack) -> Any:
        """A file to write to, closed with the stack."""
        read, write = os.pipe()
        reader = open(read, "rb", buffering=0)  # noqa: SIM115 - the transport closes it
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: self, reader)
        stack.callback(transport.close)
        return stack.enter_context(open(write, "w", encoding="utf-8"))


def _on_loop(job: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Run on the background loop and wait. Raises what the job raises, and ToolError(NETWORK_ERROR) at the limit."""

    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await job()

    try:
        return asyncio.run_coroutine_threadsafe(limited(), background.get()).result()
    except TimeoutError:
        raise ToolError(ErrorCode.NETWORK_ERROR, f"the MCP server did not answer within {seconds:g} s") from None


def _ends_session(error: MCPError) -> bool:
    """Whether the session is lost: the connection closed, or the server no longer knows the session (HTTP)."""
    return error.code == CONNECTION_CLOSED or error.message == "Session terminated"


def _code(error: MCPError) -> ErrorCode:
    return {REQUEST_TIMEOUT: ErrorCode.TIMEOUT, INVALID_PARAMS: ErrorCode.INVALID_ARGUMENT}.get(
        error.code, ErrorCode.EXECUTION_ERROR
    )
