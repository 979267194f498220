"""Error codes of a failed call, and the exceptions of a wrong set-up.

A call that fails is data (a `ToolResult` with a code), so the exceptions here are for authors and operators: a tool
that breaks its contract, a name nobody installed. The one exception a tool raises on purpose is `ToolError`.
"""

from collections.abc import Iterable
from enum import StrEnum

from rapidfuzz import process


class ErrorCode(StrEnum):
    """The codes every tool box knows; a plugin may add its own, in the same spelling (`INVALID_CITY`)."""

    PARSE_ERROR = "PARSE_ERROR"
    UNKNOWN_TOOL = "UNKNOWN_TOOL"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    TIMEOUT = "TIMEOUT"
    RATE_LIMITED = "RATE_LIMITED"
    NETWORK_ERROR = "NETWORK_ERROR"
    INVALID_RESULT = "INVALID_RESULT"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    SANDBOX_ERROR = "SANDBOX_ERROR"
    CANCELLED = "CANCELLED"


class ToolError(RuntimeError):
    """Raised inside `execute` to fail a call with a code of the tool's choice; the model reads the message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = str(code) or str(ErrorCode.EXECUTION_ERROR)
        self.message = str(message)


class InvalidToolError(TypeError):
    """A tool breaks the contract of `BaseTool`: its name, its schema, its signature, or what its entry point names."""


class UnknownToolError(LookupError):
    """No installed distribution offers this tool, or the allow-list leaves it out."""


class UnknownFormatError(LookupError):
    """No installed distribution offers this format."""


class DuplicateNameError(ValueError):
    """Two distributions offer the same name, or two tools of one box share it."""


class ToolOpenError(RuntimeError):
    """`open()` of a tool failed, so the box cannot start."""


class SandboxUnavailableError(ToolOpenError):
    """There is no sandbox on this machine to run risky code in, or the one chosen does not work."""


class ToolConfigError(ValueError):
    """A tool was configured with values it cannot work with."""


class MissingExtraError(ToolConfigError, ImportError):
    """What was asked for needs packages of an optional extra, and they are not installed."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the nearest known name, or an empty string when none is near."""
    match = process.extractOne(name, sorted(known), score_cutoff=60)
    return f"; did you mean {match[0]!r}?" if match else ""


def listed(names: Iterable[str]) -> str:
    """Return the names in order, separated by commas, for an error message."""
    return ", ".join(sorted(names)) or "none"
