"""Reward to go, whitened over the batch (Williams 1992). No critic, no group.

Each step is credited with what followed it and not with what came before.
"""

from collections.abc import Sequence

from agentr1_train import ops
from agentr1_train.advantages.base import whitened
from agentr1_train.advantages.records import Credit, CreditTrajectory


def reinforce(trajectories: Sequence[CreditTrajectory], *, gamma: float) -> Credit:
    """Return ``G_t = r_t + gamma G_{t+1}``, whitened."""
    return whitened(trajectories, tuple(tuple(ops.discounted_sums(item.rewards, gamma)) for item in trajectories))
