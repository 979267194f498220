"""The records that credit assignment reads and writes: floats for steps and tokens, no token id, no tensor.

They are small enough to be gathered from all ranks, so that every rank computes the same advantages over the whole
batch. What an estimator does is in its own file; the table of them is ``registry.py``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentr1_train import ops

StepFloats = tuple[tuple[float, ...], ...]
"""One float for each step of each trajectory, ragged."""

TokenFloats = tuple[StepFloats, ...]
"""One float for each trained token of each step of each trajectory, ragged."""


@dataclass(frozen=True, slots=True)
class CreditTrajectory:
    """What credit assignment knows of a trajectory of T steps."""

    group: int
    member: int
    rewards: tuple[float, ...]
    """Length T, KL already subtracted where it belongs to the reward."""
    lengths: tuple[int, ...]
    """Number of trained tokens of each step; 0 is allowed. Length T."""
    values: tuple[float, ...] | None = None
    """The critic at the last prompt token of each step. Length T."""
    final_value: float = 0.0
    """The critic at the prompt that would have followed; read only when ``truncated``."""
    truncated: bool = False
    state_keys: tuple[str, ...] = ()
    parts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Named reward streams, each of length T."""
    token_values: StepFloats | None = None
    """The critic at each trained token, ``lengths[t]`` of them for step t."""
    greedy_return: float | None = None
    """Return of a greedy rollout of the same seed."""
    nodes: tuple[tuple[int, int], ...] = ()
    """Where each step was played first: (member, step). Empty: all of them here, as long as no episode branches."""

    def __post_init__(self) -> None:
        steps = len(self.rewards)
        fields = {"lengths": self.lengths, "values": self.values, "token_values": self.token_values}
        fields |= {f"parts[{name!r}]": part for name, part in self.parts.items()} | {"nodes": self.nodes or None}
        for name, given in fields.items():
            if given is not None and len(given) != steps:
                raise ValueError(f"trajectory ({self.group}, {self.member}): {steps} rewards, {len(given)} {name}.")

    @property
    def total_reward(self) -> float:
        """The undiscounted return."""
        return math.fsum(self.rewards)


@dataclass(frozen=True, slots=True)
class Credit:
    """What an estimator hands back, shaped like the trajectories it was given."""

    advantages: StepFloats
    """What the loss uses: whitened where the estimator says so."""
    returns: StepFloats | None
    """Targets of the critic; ``None`` without one."""
    raw: StepFloats
    """The advantages before whitening."""


@dataclass(frozen=True, slots=True)
class TokenCredit:
    """What an estimator hands back that tells the tokens of a step apart."""

    advantages: TokenFloats
    returns: TokenFloats
    """Targets of the critic at every trained token."""
    raw: TokenFloats
    """The advantages before whitening."""

    def of_steps(self) -> Credit:
        """Return the mean over each step's tokens, 0 for a step without one: for logs and files."""
        return Credit(_means(self.advantages), _means(self.returns), _means(self.raw))


def _means(values: TokenFloats) -> StepFloats:
    return tuple(tuple(ops.mean(tokens) for tokens in item) for item in values)
