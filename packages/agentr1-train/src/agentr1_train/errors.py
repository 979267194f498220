"""Every error the trainer raises on purpose, one class a kind of failure.

Each class also inherits the standard exception a caller would expect, so ``except ValueError`` keeps working.
A bad rollout is not here: it is data (see ``Trajectory.error``).
"""

import os
from collections.abc import Iterable

from rapidfuzz import process

LOST_RANK = "another rank ended; --resume continues from the last checkpoint."
"""What a rank says that waits for one that is gone."""
_LOST_WORDS = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL communicator was aborted")


class AgentR1Error(Exception):
    """Base of all errors of this package. The command line prints its message and exits with code 2."""


class ConfigError(AgentR1Error, ValueError):
    """A recipe or an override cannot be used as it is."""


class UnknownNameError(AgentR1Error, KeyError):
    """A name that is not registered: an estimator, a preset, a sampler."""

    def __init__(self, kind: str, given: str, legal: Iterable[str]) -> None:
        self.kind, self.given, self.legal = kind, given, tuple(sorted(legal))
        super().__init__(f"unknown {kind} {given!r}{did_you_mean(given, self.legal)} Legal: {', '.join(self.legal)}.")

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])

    def __reduce__(self) -> tuple[type, tuple[str, str, tuple[str, ...]]]:  # pickle would call it with the message
        return type(self), (self.kind, self.given, self.legal)


class MissingFileError(AgentR1Error, FileNotFoundError):
    """A model, a recipe or a data file that is not where it was said to be."""


class DeviceError(AgentR1Error, RuntimeError):
    """A device, a precision or a rank count that this machine does not offer."""


class EnvironmentLoadError(AgentR1Error, RuntimeError):
    """An environment that could not be made at all; one that fails in ``reset`` or ``step`` is a trajectory's error."""


class ClusterError(AgentR1Error, RuntimeError):
    """A Ray cluster that cannot be reached, has no room for the actors, or loses them faster than they start."""


class RolloutError(AgentR1Error, RuntimeError):
    """More trajectories failed than the recipe allows; the message has the commonest reason."""


class RunFailedError(AgentR1Error, RuntimeError):
    """A training process that was started here ended with an error of its own."""


class SpanMismatchError(AgentR1Error, AssertionError):
    """A trained span of the packed tensors differs from the ids that were sampled."""


class NonFiniteLossError(AgentR1Error, ArithmeticError):
    """A loss that is NaN or infinite; training stops before the optimizer sees it."""


class NonFiniteLogitsError(AgentR1Error, ArithmeticError):
    """The model gave NaN or infinite logits while sampling."""


class EndpointError(AgentR1Error, ConnectionError):
    """An endpoint that cannot be used, or gives no answer within the retries."""


class RequestRefusedError(AgentR1Error, ValueError):
    """An endpoint refuses one request for what it says (too long, filtered): that episode's error, not the run's."""


class OutOfMemoryError(AgentR1Error, MemoryError):
    """A micro-batch that does not fit into memory; no weight was changed."""


class StoppedError(AgentR1Error, RuntimeError):
    """SIGTERM was obeyed: the update is done and its checkpoint written. The command line exits with code 143."""


class CheckpointError(AgentR1Error, RuntimeError):
    """A checkpoint that is incomplete, or was written by another recipe or rank count."""


def did_you_mean(given: str, legal: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest legal name, or ``.`` when none is near."""
    found = process.extractOne(given, list(legal), score_cutoff=60)
    return f". Did you mean {found[0]!r}?" if found else "."


def is_lost_rank(error: BaseException) -> bool:
    """Return whether an error says that another rank is gone."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and any(word in str(error) for word in _LOST_WORDS)
