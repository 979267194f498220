"""What estimators have in common: group statistics, values that must be there, whitening. The records: ``records.py``.

Every function here gives steps that several trajectories have in common one value (``branches.py``); while no episode
branches, that changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentr1_train import ops
from agentr1_train.advantages.branches import counted_lengths, first_plays, share
from agentr1_train.advantages.records import Credit, CreditTrajectory, StepFloats, TokenCredit
from agentr1_train.errors import ConfigError


class CreditSettings(Protocol):
    """The settings an estimator may read, by the names in ``Estimator.reads``: ``presets.AlgorithmSettings``."""

    @property
    def estimator(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Estimator:
    """An entry of the registry."""

    compute: Callable[..., Credit | TokenCredit]
    """Called with the trajectories and, by keyword, the settings named below."""
    reads: tuple[str, ...] = ()
    """Settings that act."""
    needs_critic: bool = False
    by_token: bool = False
    """True when it tells the tokens of a step apart: the critic is then read, and trained, at every trained token."""
    by_group: bool = False
    """True when a trajectory is measured against its group, so that a flat group carries no signal."""
    needs_greedy: bool = False
    """True when it needs a greedy rollout of each seed."""
    reads_parts: bool = False
    """True when it reads reward streams and not the reward."""


def spread(trajectories: Sequence[CreditTrajectory], scores: Sequence[float]) -> Credit:
    """Give every step of a trajectory the trajectory's score, without whitening."""
    rows = tuple((score,) * len(item.rewards) for item, score in zip(trajectories, scores, strict=True))
    rows = share(trajectories, rows)
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
    return _whitened(share(trajectories, raw), counted_lengths(trajectories))


def whitened(trajectories: Sequence[CreditTrajectory], raw: StepFloats, returns: StepFloats | None = None) -> Credit:
    """Whiten over all steps of the batch, empty responses included: they stay in credit."""
    credit = _whitened(share(trajectories, raw), first_plays(trajectories))
    return credit if returns is None else Credit(credit.advantages, share(trajectories, returns), credit.raw)


def _whitened(raw: StepFloats, counts: Sequence[Sequence[int]]) -> Credit:
    values = [value for row in raw for value in row]
    centre, scale = ops.weighted_moments(values, [int(count) for row in counts for count in row])
    return Credit(tuple(tuple((value - centre) / scale for value in row) for row in raw), returns=None, raw=raw)
