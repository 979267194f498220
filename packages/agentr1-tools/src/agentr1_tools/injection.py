"""Errors on purpose, so that a policy learns to go on after a tool has failed. For training only.

Which calls of an episode fail depends on the episode's seed and the call's number in it, and on nothing else: not on
what other episodes do with the same tool box, nor on time. The box only carries out what is drawn here.
"""

import hashlib
from dataclasses import dataclass

from agentr1_tools.errors import ErrorCode, ToolConfigError
from agentr1_tools.result import ToolResult, timeout_result

CODES = (str(ErrorCode.TIMEOUT), str(ErrorCode.NETWORK_ERROR), str(ErrorCode.EXECUTION_ERROR))
_MESSAGES = {CODES[1]: "the service cannot be reached", CODES[2]: "the tool failed"}


@dataclass(frozen=True)
class ErrorInjection:
    """The calls of one episode that fail on purpose.

    rate: probability of each call, 0 to 1. seed: of the episode. codes: what a failure is drawn from.
    """

    rate: float
    seed: int
    codes: tuple[str, ...] = CODES

    def __post_init__(self) -> None:
        if not 0.0 <= self.rate <= 1.0 or not self.codes:
            raise ToolConfigError(
                f"error injection with rate {self.rate!r} and codes {self.codes!r}; the rate must be 0 to 1, and there "
                "must be a code"
            )

    def code(self, number: int) -> str | None:
        """The code with which the episode's call of this number (from 0) fails, or None when it does not."""
        draw = hashlib.blake2b(f"{self.seed}/{number}".encode(), digest_size=16).digest()
        if int.from_bytes(draw[:8], "big") >= self.rate * 2**64:
            return None
        return self.codes[int.from_bytes(draw[8:], "big") % len(self.codes)]


def injected_result(code: str, timeout: float) -> ToolResult:
    """An injected error: the model reads what it would read of a real one, the metrics tell it apart."""
    if code == ErrorCode.TIMEOUT:
        failure = timeout_result(timeout)
    else:
        failure = ToolResult.failure(code, _MESSAGES.get(code, "the tool failed"))
    return failure.with_metrics(injected=True)
