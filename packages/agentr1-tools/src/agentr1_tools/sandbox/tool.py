"""SandboxTool: a risky tool whose calls run Python code in a sandbox."""

import dataclasses
from collections.abc import Mapping
from signal import SIGXCPU, Signals
from typing import Any

from agentr1_tools.base import BaseTool, ToolReturn
from agentr1_tools.errors import ErrorCode, ToolError
from agentr1_tools.result import ToolResult, timeout_result
from agentr1_tools.sandbox.limits import Limits
from agentr1_tools.sandbox.run import Outcome
from agentr1_tools.sandbox.sandbox import Sandbox, find_sandbox
from agentr1_tools.sandbox.settings import SandboxKind, SandboxSettings


class SandboxTool(BaseTool):
    """Subclass it and say which code a call runs (`code`); `answer` says what its outcome means, if not its output.

    The tool itself runs outside: only the text that `code` returns runs inside, with the Python of the sandbox, which
    has no access to this package, the arguments or the tool. The limit holds for the whole call, the start of the
    sandbox included.

    sandbox, interpreter, image, limits, allow_unsafe_subprocess: see `SandboxSettings`; `limits` may be a mapping.
    timeout: seconds, in place of the class's.
    """

    timeout = 5.0
    cacheable = False
    risky = True

    def __init__(
        self,
        *,
        sandbox: SandboxKind | None = None,
        interpreter: str | None = None,
        image: str | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        allow_unsafe_subprocess: bool = False,
        timeout: float | None = None,
    ) -> None:
        if not isinstance(limits, Limits):
            limits = Limits.from_mapping(limits or {})
        self.settings = SandboxSettings(sandbox, interpreter, image, limits, allow_unsafe_subprocess)
        self.sandbox: Sandbox | None = None
        if timeout is not None:
            self.timeout = timeout

    def open(self) -> None:
        """Find a sandbox and try it. Raises SandboxUnavailableError."""
        if self.sandbox is None:
            self.sandbox = find_sandbox(self.settings)

    def code(self, params: dict[str, Any]) -> str:
        """The Python code that these arguments ask for."""
        raise NotImplementedError(f"{type(self).__name__} must define code(params), the text that runs in the sandbox")

    def answer(self, outcome: Outcome) -> ToolReturn:
        """What a run that ended within its time means: its output, or EXECUTION_ERROR when it did not end well."""
        data = {name: value for name, value in dataclasses.asdict(outcome).items() if name in _SHOWN}
        if outcome.exit_code == 0:
            said = "\n".join(text.rstrip("\n") for text in (outcome.stdout, outcome.stderr) if text)
            return {"status": "success", "data": data, "text": said or "(no output)"}
        told = outcome.stderr.strip() or _ending(outcome)
        before = f"\nOutput before that:\n{outcome.stdout}" if outcome.stdout else ""
        return ToolResult.failure(ErrorCode.EXECUTION_ERROR, told + before, data)

    def execute(self, params: dict[str, Any]) -> ToolReturn:
        """Run the code of one call."""
        if self.sandbox is None:
            self.open()
        assert self.sandbox is not None
        try:
            outcome = self.sandbox.run(self.code(params), self.timeout)
        except OSError as error:
            raise ToolError(ErrorCode.SANDBOX_ERROR, f"the sandbox cannot start: {error}") from error
        if outcome.timed_out or outcome.signal == SIGXCPU:
            return timeout_result(self.timeout)
        if not outcome.started:
            said = " ".join(outcome.stderr.split())[-500:] or f"exit code {outcome.exit_code}"
            raise ToolError(ErrorCode.SANDBOX_ERROR, f"the sandbox cannot start: {said}")
        return self.answer(outcome)


_SHOWN = ("exit_code", "stdout", "stderr")


def _ending(outcome: Outcome) -> str:
    if not outcome.signal:
        return f"the program ended with exit code {outcome.exit_code}"
    hint = "; it may have used too much memory" if outcome.signal == 9 else ""
    return f"the program was ended by {Signals(outcome.signal).name}{hint}"
