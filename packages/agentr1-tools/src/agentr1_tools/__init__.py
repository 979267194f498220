"""agentr1-tools: tools for language-model agents as independent plugins."""

from agentr1_tools.base import BaseTool
from agentr1_tools.calls import CallError, ParsedResponse, ToolCall
from agentr1_tools.conformance import ToolCheckError, check_tool
from agentr1_tools.errors import ErrorCode, ToolError
from agentr1_tools.formats.base import ToolFormat
from agentr1_tools.function_tool import tool
from agentr1_tools.injection import ErrorInjection
from agentr1_tools.registry import ToolInfo, available, available_formats, get_format, load_tool
from agentr1_tools.result import ToolResult
from agentr1_tools.sandbox.tool import SandboxTool
from agentr1_tools.toolbox import ToolBox

__all__ = [
    "BaseTool",
    "CallError",
    "ErrorCode",
    "ErrorInjection",
    "ParsedResponse",
    "SandboxTool",
    "ToolBox",
    "ToolCall",
    "ToolCheckError",
    "ToolError",
    "ToolFormat",
    "ToolInfo",
    "ToolResult",
    "available",
    "available_formats",
    "check_tool",
    "get_format",
    "load_tool",
    "tool",
]
