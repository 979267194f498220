"""`finish`: the final answer as a call, for models that are used to end with a tool (ReAct's `finish[answer]`)."""

from typing import Any

from agentr1_tools.base import BaseTool, ToolReturn
from agentr1_tools.result import ToolResult

_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string", "description": "the final answer, as short as it can be"}},
    "required": ["answer"],
    "additionalProperties": False,
}


class Finish(BaseTool):
    """Hands the answer to whoever runs the episode: `data` is `{"answer": ...}`. It ends nothing by itself.

    `agentr1_envs.ToolEnv` scores the answer and ends the episode when this is the only call of a response; beside other
    calls the model reads the text below and calls again.
    """

    name = "finish"
    description = "Give the final answer. It ends the task, so call it alone, when nothing else is left to do."
    parameters = _PARAMETERS
    cacheable = False
    cooperative = True

    def execute(self, params: dict[str, Any]) -> ToolReturn:
        """Return the answer as it was given."""
        text = f"Not ended: call finish alone to answer {params['answer']!r}."
        return ToolResult.success({"answer": params["answer"]}, text)
