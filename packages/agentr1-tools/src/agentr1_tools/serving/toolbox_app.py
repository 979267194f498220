"""The HTTP application of a tool box.

    GET  /health   {"status": "ok", "tools": [name, ...], "running": n}
    GET  /tools    {"tools": [{"type": "function", "function": {...}, "timeout", "cacheable", "min_interval"}, ...]}
    POST /call     {"name", "arguments"} -> {"status", "data", "error", "text", "metrics", "source"}
    POST /calls    {"calls": [{"name", "arguments"}, ...]} -> {"results": [as of /call, in the order of the calls]}

A call that fails is data: its answer has status 200 and an error code. Another status means that the request itself was
not taken: 413, 408 and 429 by the gate, 422 for a body that is not of this form; the answer is a result then too.
"""

from typing import Annotated, Any

from fastapi import FastAPI, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field

from agentr1_tools.base import BaseTool
from agentr1_tools.calls import ToolCall
from agentr1_tools.serving.answers import as_json, as_response, json_response, refuse_malformed
from agentr1_tools.serving.gate import Gate, ServingLimits
from agentr1_tools.toolbox import ToolBox


class CallBody(BaseModel):
    """One call."""

    model_config = ConfigDict(extra="forbid")
    name: str
    arguments: dict[str, Any] = {}

    def call(self) -> ToolCall:
        """The call as a tool box takes it."""
        return ToolCall(self.name, self.arguments)


def toolbox_app(box: ToolBox, limits: ServingLimits | None = None) -> Gate:
    """The application of an open box, with the gate in front."""
    limits = limits or ServingLimits()

    class BatchBody(BaseModel):
        """Several calls."""

        model_config = ConfigDict(extra="forbid")
        calls: Annotated[list[CallBody], Field(min_length=1, max_length=limits.max_batch)]

    async def health() -> Response:
        return json_response({"status": "ok", "tools": box.names, "running": gate.running})

    async def tools() -> Response:
        return json_response({"tools": [_declaration(tool) for tool in box.tools]})

    async def call(body: CallBody) -> Response:
        return as_response(await box.acall(body.call()))

    async def calls(body: BatchBody) -> Response:
        results = await box.acall_many([each.call() for each in body.calls])
        return json_response({"results": [as_json(result) for result in results]})

    app = FastAPI(title="agentr1-tools", openapi_url=None)
    app.add_api_route("/health", health, methods=["GET"])
    app.add_api_route("/tools", tools, methods=["GET"])
    app.add_api_route("/call", call, methods=["POST"])
    app.add_api_route("/calls", calls, methods=["POST"])
    app.add_exception_handler(RequestValidationError, refuse_malformed)
    gate = Gate(app, limits)
    return gate


def _declaration(tool: BaseTool) -> dict[str, Any]:
    return {
        **tool.schema,
        "timeout": tool.timeout,
        "cacheable": tool.cacheable,
        "min_interval": tool.min_interval,
    }
