"""Credit from several reward streams (this project's own): each estimated and whitened apart, then weighed and added.

Whitening first puts the streams on one scale, so that the weights say what they seem to say. Streams are the
environment's ``info["reward/<name>"]``, and ``sem``, which the trainer computes: see ``coherence``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from agentr1_train import ops
from agentr1_train.advantages.base import whitened
from agentr1_train.advantages.records import Credit, CreditTrajectory
from agentr1_train.advantages.reinforce import reinforce
from agentr1_train.errors import ConfigError

COHERENCE = "sem"
"""The stream that is computed here and not by the environment."""

PART_WEIGHTS: Mapping[str, float] = MappingProxyType({"env": 0.4, COHERENCE: 0.2, "task": 0.4})
"""Tool results, coherence of the response, final match."""


def _reward_to_go(trajectories: Sequence[CreditTrajectory]) -> Credit:
    return reinforce(trajectories, gamma=1.0)


def layered(
    trajectories: Sequence[CreditTrajectory],
    *,
    weights: Mapping[str, float] = PART_WEIGHTS,
    estimator: Callable[[Sequence[CreditTrajectory]], Credit] = _reward_to_go,
) -> Credit:
    """Return ``sum_p weights[p] whiten(A_p)``, with ``A_p`` the estimator's raw advantages on the reward part p.

    Raises:
        ConfigError: a trajectory that lacks a part.
    """
    total = [[0.0] * len(item.rewards) for item in trajectories]
    for part, weight in weights.items():
        streams = [replace(item, rewards=_part(item, part)) for item in trajectories]
        for row, advantages in zip(total, whitened(streams, estimator(streams).raw).advantages, strict=True):
            for index, advantage in enumerate(advantages):
                row[index] += weight * advantage
    rows = tuple(map(tuple, total))
    return Credit(advantages=rows, returns=None, raw=rows)


def coherence(ref_logp: Sequence[float]) -> float:
    """Return the mean log-probability of a response under the frozen reference, nats a token; 0 of no token."""
    return ops.mean(ref_logp)


def _part(item: CreditTrajectory, name: str) -> tuple[float, ...]:
    if name not in item.parts:
        raise ConfigError(
            f"estimator 'layered' needs the reward part {name!r}; trajectory ({item.group}, {item.member}) has "
            f"{', '.join(sorted(item.parts)) or 'none'}. The environment gives it as info['reward/{name}'] at every "
            "step; algorithm.layer_weights says which streams there are."
        )
    return item.parts[name]
