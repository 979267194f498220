"""`python`: runs code in a sandbox and shows what it prints. The sandbox is `sandbox/`; nothing of it is here."""

from typing import Any

from agentr1_tools.sandbox.tool import SandboxTool

_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "minLength": 1, "maxLength": 100_000, "description": "The Python code to run."}
    },
    "required": ["code"],
    "additionalProperties": False,
}


class Python(SandboxTool):
    """Each call is a fresh interpreter: nothing defined in one call exists in the next.

    `data` of a result is `{"exit_code", "stdout", "stderr"}`; stdout ends with the value of a last expression.
    """

    name = "python"
    description = (
        "Run Python code and return what it prints and the value of its last line. Each call starts afresh, "
        "without network and without files of earlier calls."
    )
    parameters = _PARAMETERS

    def code(self, params: dict[str, Any]) -> str:
        """The argument as it is."""
        return str(params["code"])
