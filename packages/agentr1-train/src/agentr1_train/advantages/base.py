"""The records that credit assignment reads and writes: one float a step, no token, no tensor.

They are small enough to be gathered from all ranks, so that every rank computes the same advantages over the whole
batch. What an estimator does is in its own file; the table of them is ``registry.py``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agentr1_train import ops
from agentr1_train.errors import ConfigError

StepFloats = tuple[tuple[float, ...], ...]
"""One float for each step of each trajectory, ragged."""


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
    token_values: tuple[tuple[float, ...], ...] | None = None
    """The critic at each trained token, ``lengths[t]`` of them for step t."""
    greedy_return: float | None = None
    """Return of a greedy rollout of the same seed."""

    def __post_init__(self) -> None:
        steps = len(self.rewards)
        fields = {"lengths": self.lengths, "values": self.values, "token_values": self.token_values}
        fields |= {f"parts[{name!r}]": part for name, part in self.parts.items()}
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


TokenFloats = tuple[StepFloats, ...]
"""One float for each trained token of each step of each trajectory, ragged."""


@dataclass(frozen=True, slots=True)
class TokenCredit:
    """What an estimator hands back that tells the tokens of a step apart."""

    advantages: TokenFloats
    returns: TokenFloats
    """Targets of the critic at every trained token."""
    raw: TokenFloats
    """The advantages before whitening."""


class CreditSettings(Protocol):
    """The settings an estimator may read; ``presets.AlgorithmSettings`` has them."""

    @property
    def estimator(self) -> str: ...
    @property
    def gamma(self) -> float: ...
    @property
    def lam(self) -> float: ...
    @property
    def bootstrap_truncated(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Estimator:
    """An entry of the registry."""

    compute: Callable[..., Credit]
    """Called with the trajectories and, by keyword, the settings named below."""
    reads: tuple[str, ...] = ()
    """Settings that act: of ``gamma``, ``lam``, ``bootstrap_truncated``."""
    needs_critic: bool = False
    by_group: bool = False
    """True when a trajectory is measured against its group, so that a flat group carries no signal."""


def spread(trajectories: Sequence[CreditTrajectory], scores: Sequence[float]) -> Credit:
    """Give every step of a trajectory the trajectory's score, without whitening."""
    rows = tuple((score,) * len(item.rewards) for item, score in zip(trajectories, scores, strict=True))
    return Credit(advantages=rows, returns=None, raw=rows)


def returns_by_group(trajectories: Sequence[CreditTrajectory]) -> dict[int, list[float]]:
    """Return the undiscounted returns of each group, keyed by group index."""
    groups: dict[int, list[float]] = {}
    for item in trajectories:
        groups.setdefault(item.group, []).append(item.total_reward)
    return groups


def centred_returns(trajectories: Sequence[CreditTrajectory]) -> list[float]:
    """Return ``R - mean_g`` of each trajectory; a group of one has nothing to compare with and keeps its return."""
    groups = returns_by_group(trajectories)
    means = {index: ops.mean(found) if len(found) > 1 else 0.0 for index, found in groups.items()}
    return [item.total_reward - means[item.group] for item in trajectories]


def flat_groups(trajectories: Sequence[CreditTrajectory]) -> frozenset[int]:
    """Return the groups of two or more trajectories whose returns are all equal: they carry no relative signal."""
    groups = returns_by_group(trajectories)
    return frozenset(index for index, found in groups.items() if len(found) > 1 and min(found) == max(found))


def step_values(item: CreditTrajectory, estimator: str) -> tuple[float, ...]:
    """Return the critic's values of a trajectory.

    Raises:
        ConfigError: the trajectory has none.
    """
    if item.values is None:
        raise ConfigError(
            f"estimator {estimator!r} needs the critic's values; trajectory ({item.group}, {item.member}) has none. "
            "Train with a critic, or take an estimator without one: grpo, rloo, reinforce."
        )
    return item.values


def token_values(item: CreditTrajectory, estimator: str) -> StepFloats:
    """Return the critic's values at the trained tokens of a trajectory.

    Raises:
        ConfigError: the trajectory has none, or not one for each trained token.
    """
    if item.token_values is None or tuple(map(len, item.token_values)) != item.lengths:
        raise ConfigError(
            f"estimator {estimator!r} needs one value of the critic at each trained token; trajectory "
            f"({item.group}, {item.member}) has {item.lengths} tokens and other values."
        )
    return item.token_values


def whitened_by_tokens(trajectories: Sequence[CreditTrajectory], raw: StepFloats) -> Credit:
    """Whiten over trained tokens: a step counts as often as it has tokens. Fewer than two tokens change nothing."""
    values = [value for row in raw for value in row]
    counts = [length for item in trajectories for length in item.lengths]
    centre, scale = ops.weighted_moments(values, counts)
    return Credit(tuple(tuple((value - centre) / scale for value in row) for row in raw), returns=None, raw=raw)


def whitened(raw: StepFloats, returns: StepFloats | None = None) -> Credit:
    """Whiten over all steps of the batch, empty responses included: they stay in credit."""
    return Credit(advantages=ops.whiten_ragged(raw), returns=returns, raw=raw)
