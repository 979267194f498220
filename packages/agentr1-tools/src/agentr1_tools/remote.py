"""RemoteTool: a tool of a tool server (`agentr1-tools serve`), called over HTTP as if it were here.

    {"name": "remote", "url": "http://127.0.0.1:8001", "tool": "calculator"}     in a recipe or an environment's tools
    remote_tools("http://127.0.0.1:8001")                                        all tools of a server

It takes name, description, parameters and limits from the server when it is made, since a tool box needs them before
anything opens. The server validates, times and runs; what it answers, error codes included, is the result here.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from agentr1_tools.base import BaseTool, ToolReturn
from agentr1_tools.errors import ErrorCode, ToolConfigError, ToolError, UnknownToolError, did_you_mean, listed
from agentr1_tools.http_client import HttpClient
from agentr1_tools.result import ToolResult

WIRE_SECONDS = 0.5
"""Added to the limit a tool has at its server, so that the server's own TIMEOUT arrives first."""
_ASK_SECONDS = 10.0


class RemoteTool(BaseTool):
    """One tool of a server.

    url: the server's address. tool: the tool's name there.
    prefix: put in front of the name here, where two servers offer the same one.
    timeout: seconds a call may take; by default the tool's limit at the server and half a second for the way.
    declared: what the server's `GET /tools` says of the tool; asked for when it is not given.

    Raises ToolConfigError when no server answers, and UnknownToolError when it has no such tool.
    """

    cooperative = True
    proxy = True

    def __init__(
        self,
        url: str,
        tool: str,
        *,
        prefix: str = "",
        timeout: float | None = None,
        declared: Mapping[str, Any] | None = None,
    ) -> None:
        self._http = HttpClient(url, "the tool server")
        self._tool = tool
        known = declarations(url) if declared is None else {tool: declared}
        if tool not in known:
            raise UnknownToolError(
                f"the tool server at {url} has no tool {tool!r}{did_you_mean(tool, known)} (it has {listed(known)})"
            )
        there = known[tool]
        self.name = prefix + tool
        self.description = str(there["function"]["description"])
        self.parameters = dict(there["function"]["parameters"])
        self.cacheable = bool(there["cacheable"])
        self.min_interval = float(there["min_interval"])
        self.timeout = float(there["timeout"]) + WIRE_SECONDS if timeout is None else timeout

    def open(self) -> None:
        """Get ready to connect; whether the server is there shows at the first call."""
        self._http.open()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def execute(self, params: dict[str, Any]) -> ToolReturn:
        """Have the server run the call. Raises ToolError (TIMEOUT, NETWORK_ERROR)."""
        status, answer = self._http.post("/call", {"name": self._tool, "arguments": params}, self.timeout)
        return _as_result(status, answer)


def remote_tools(
    url: str, *, names: Iterable[str] | None = None, prefix: str = "", timeout: float | None = None
) -> list[RemoteTool]:
    """All tools of a server, or those of these names, in the server's order. Arguments and errors as for RemoteTool."""
    known = declarations(url)
    wanted = list(known) if names is None else list(names)
    return [RemoteTool(url, name, prefix=prefix, timeout=timeout, declared=known.get(name)) for name in wanted]


def declarations(url: str) -> dict[str, dict[str, Any]]:
    """What a server says of its tools, by name. Raises ToolConfigError when none answers."""
    http = HttpClient(url, "the tool server")
    try:
        status, answer = http.get("/tools", _ASK_SECONDS)
        if status != 200:
            raise ToolError(ErrorCode.NETWORK_ERROR, f"the tool server answered {status}: {str(answer)[:200]}")
        tools = {str(tool["function"]["name"]): _checked(tool) for tool in answer["tools"]}
    except ToolError as error:
        raise ToolConfigError(f"{error}; start one with: agentr1-tools serve --tools NAME ...") from None
    except (LookupError, TypeError) as error:
        raise ToolConfigError(f"{url} is no tool server: its list of tools cannot be read ({error!r})") from None
    finally:
        http.close()
    return tools


def _checked(tool: dict[str, Any]) -> dict[str, Any]:
    """The declaration, if nothing in it is missing. Raises LookupError, TypeError."""
    for key in ("timeout", "cacheable", "min_interval"):
        tool[key]
    for key in ("description", "parameters"):
        tool["function"][key]
    return tool


def _as_result(status: int, answer: Any) -> ToolResult:
    """The result a server sent. A body that holds none is a NETWORK_ERROR that names the HTTP status."""
    fields: Mapping[str, Any] = cast(Mapping[str, Any], answer) if isinstance(answer, Mapping) else {}
    if not {"status", "text"} <= fields.keys():
        problem = f"the tool server answered {status} without a result: {str(cast(object, answer))[:200]}"
        return ToolResult.failure(ErrorCode.NETWORK_ERROR, problem)
    metrics: Mapping[str, Any] = fields.get("metrics") or {}
    return ToolResult(
        fields["status"],
        data=fields.get("data"),
        error=fields.get("error"),
        text=fields["text"],
        metrics={f"server_{name}": value for name, value in metrics.items()},
    )
