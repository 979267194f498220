"""REINFORCE with a leave-one-out baseline (RLOO, arXiv 2402.14740).

The baseline of a trajectory is the mean return of the others of its group: ``G / (G - 1) (R - mean_g)`` is
``R - mean of the others``. A group of one has no others and keeps its return.
"""

from collections.abc import Sequence

from agentr1_train import ops
from agentr1_train.advantages.base import returns_by_group, spread
from agentr1_train.advantages.records import Credit, CreditTrajectory


def rloo(trajectories: Sequence[CreditTrajectory]) -> Credit:
    """Return ``G / (G - 1) (R - mean_g)``, the same for each step of a trajectory."""
    groups = returns_by_group(trajectories)
    scores = []
    for item in trajectories:
        size = len(groups[item.group])
        centred = item.total_reward - ops.mean(groups[item.group])
        scores.append(centred * size / (size - 1) if size > 1 else item.total_reward)
    return spread(trajectories, scores)
