"""McpTool: any MCP server's tools (Model Context Protocol) as tools of this package. Needs the extra `mcp`.

    mcp_tools(command=["python", "server.py"])                              a server started here, over its stdio
    mcp_tools(url="http://127.0.0.1:8000/mcp")                              a server elsewhere, over streamable HTTP
    {"name": "mcp", "url": "http://127.0.0.1:8000/mcp", "tool": "add"}      one of them, in a recipe

Prompts, resources, sampling and elicitation are not offered: only tools.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentr1_tools.base import BaseTool, ToolReturn, check_contract
from agentr1_tools.errors import (
    DuplicateNameError,
    ErrorCode,
    ToolConfigError,
    ToolError,
    UnknownToolError,
    did_you_mean,
    listed,
)
from agentr1_tools.extras import require
from agentr1_tools.result import ToolResult, render_data

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock, Tool

    from agentr1_tools.mcp_session import McpSession

CALL_SECONDS = 10.0
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9_]")


class McpTool(BaseTool):
    """One tool of an MCP server; made by `mcp_tool` and `mcp_tools`."""

    cooperative = True
    proxy = True

    def __init__(self, session: "McpSession", tool: "Tool", *, prefix: str, timeout: float, cacheable: bool) -> None:
        self.session = session
        self.name_there = tool.name
        self.name = (prefix + _NOT_IN_A_NAME.sub("_", tool.name.lower()))[:64]
        self.description = (tool.description or "").strip() or tool.title or tool.name
        self.parameters = {"type": "object", "properties": {}, **tool.input_schema}
        self.timeout, self.cacheable = timeout, cacheable
        self._is_open = False
        check_contract(self)

    def open(self) -> None:
        """Join the server's session; the first tool of a server connects."""
        if not self._is_open:
            self.session.open()
            self._is_open = True

    def close(self) -> None:
        """Leave the session; the last tool of a server ends it."""
        if self._is_open:
            self._is_open = False
            self.session.close()

    async def execute(self, params: dict[str, Any]) -> ToolReturn:
        """Have the server run the call. Raises ToolError; see `McpSession.call`."""
        return as_result(await self.session.call(self.name_there, params, self.timeout))


def mcp_tool(tool: str, **settings: Any) -> McpTool:
    """One tool of a server, by the server's name for it; the settings are the arguments of `mcp_tools`."""
    return mcp_tools(names=[tool], **settings)[0]


def mcp_tools(
    command: Sequence[str] | None = None,
    *,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    names: Iterable[str] | None = None,
    prefix: str = "",
    timeout: float = CALL_SECONDS,
    cacheable: bool = False,
) -> list[McpTool]:
    """All tools of a server, or those of these names, as the server spells them.

    The server is asked once, now, and let go again; opening the first of its tools connects for all of them.

    Args:
        command: program and arguments that start the server.
        url: where the server is, instead.
        env: variables for the process, beside `PATH`, `HOME` and the like.
        headers: sent with every request to the `url`.
        names: the only tools to take.
        prefix: put in front of the names here, which are in lower case and have `_` for what a name may not hold.
        timeout: seconds a call may take, connecting again included.
        cacheable: equal arguments give equal results; not so by default, since a server's tool may do anything.

    Raises:
        MissingExtraError: the extra `mcp` is not installed.
        ToolConfigError: the server cannot be asked.
        UnknownToolError: it has no tool of a name.
        DuplicateNameError: two of its names become one here.
    """
    session, known = _ask(command, url, env, headers)
    chosen = _chosen(known, list(known) if names is None else list(names), session)
    tools = [McpTool(session, tool, prefix=prefix, timeout=timeout, cacheable=cacheable) for tool in chosen]
    theirs: dict[str, str] = {}
    for tool in tools:
        other = theirs.setdefault(tool.name, tool.name_there)
        if other != tool.name_there:
            raise DuplicateNameError(
                f"{other!r} and {tool.name_there!r} of {session.address} are both {tool.name!r} here; choose by names="
            )
    return tools


def as_result(answer: "CallToolResult") -> ToolResult:
    """What a server answered, as a result.

    Text is text. Images, audio, links and binary resources, which a text model cannot read, are named with their type
    and size; `metrics["unread"]` counts them. `data` is the structured content, or else the text.
    """
    parts = [_described(block) for block in answer.content]
    text = "\n".join(part for part, _ in parts)
    data = answer.structured_content if answer.structured_content is not None else text
    if answer.is_error:
        return ToolResult.failure(
            ErrorCode.EXECUTION_ERROR, text or "the server gave no reason", answer.structured_content
        )
    result = ToolResult.success(data, text or render_data(data))
    unread = sum(not readable for _, readable in parts)
    return result.with_metrics(unread=unread) if unread else result


def _described(block: "ContentBlock") -> tuple[str, bool]:
    """A block of content as text, and whether that is all of it."""
    match block.type:
        case "text":
            return block.text, True
        case "image" | "audio":
            return f"[{block.type}, {block.mime_type}, {_size(block.data)} bytes: not shown]", False
        case "resource_link":
            return f"[link to {block.name}: {block.uri}]", False
        case "resource":
            held = block.resource
            blob = getattr(held, "blob", None)
            if blob is None:
                return str(getattr(held, "text", "")), True
            return f"[resource {held.uri}, {held.mime_type or 'unknown type'}, {_size(blob)} bytes: not shown]", False


def _size(base64: str) -> int:
    """Bytes that a base64 text stands for."""
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _ask(
    command: Sequence[str] | None,
    url: str | None,
    env: Mapping[str, str] | None,
    headers: Mapping[str, str] | None,
) -> "tuple[McpSession, dict[str, Tool]]":
    """The session with a server, closed again, and its tools by name. Raises ToolConfigError."""
    require("mcp", "using the tools of an MCP server")
    from agentr1_tools.mcp_session import McpAddress, session_for

    session = session_for(McpAddress.of(command, url, env, headers))
    try:
        session.open()
        try:
            return session, {tool.name: tool for tool in session.list_tools()}
        finally:
            session.close()
    except ToolError as error:
        raise ToolConfigError(str(error)) from None


def _chosen(known: "dict[str, Tool]", names: list[str], session: "McpSession") -> "list[Tool]":
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UnknownToolError(
                f"the MCP server {session.address} has no tool {name!r}{hint} (it has {listed(known)})"
            )
    return [known[name] for name in names]
