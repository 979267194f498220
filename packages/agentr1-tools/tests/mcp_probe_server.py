"""An MCP server for the tests, made with the official SDK: over stdio, or over streamable HTTP on the port given."""

import os
import sys
import time
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Audio, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import BlobResourceContents, CallToolResult, EmbeddedResource, ResourceLink, TextContent

server = MCPServer("probe")
PIXEL = b"\x89PNG\r\n"


@server.tool()
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


@server.tool(name="Say-It.Loud", structured_output=False)
def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


@server.tool()
def process_id() -> int:
    """The number of the server's process."""
    return os.getpid()


@server.tool()
def nap(seconds: float, begun: str = "") -> str:
    """Sleep; a file by the name of `begun` tells that it has begun."""
    if begun:
        Path(begun).touch()
    time.sleep(seconds)
    return "slept"


@server.tool()
def refuse() -> str:
    """Fail."""
    raise ToolError("the lake froze over")


@server.tool(structured_output=False)
def show() -> list[Any]:
    """Text, an image and a sound."""
    return ["a pixel:", Image(data=PIXEL, format="png"), Audio(data=b"12345", format="wav")]


@server.tool(structured_output=False)
def attach() -> CallToolResult:
    """A link and a binary resource."""
    blob = BlobResourceContents(uri="probe://blob", mime_type="application/zip", blob="AAECAw==")
    return CallToolResult(
        content=[
            TextContent(text="attached:"),
            ResourceLink(name="manual", uri="probe://manual"),
            EmbeddedResource(resource=blob),
        ]
    )


@server.tool()
def secret() -> str:
    """What the environment holds."""
    return os.environ.get("PROBE_SECRET", "nothing")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "broken":
        raise SystemExit("probe: no licence found")
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
