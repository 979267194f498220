"""GRPO without the division by the group's standard deviation (Dr. GRPO, arXiv 2503.20783).

Its other half, the constant denominator instead of each response's length, is the aggregation ``token_sum_norm``.
"""

from collections.abc import Sequence

from agentr1_train.advantages.base import centred_returns, spread
from agentr1_train.advantages.records import Credit, CreditTrajectory


def dr_grpo(trajectories: Sequence[CreditTrajectory]) -> Credit:
    """Return ``R - mean_g``, the same for each step of a trajectory."""
    return spread(trajectories, centred_returns(trajectories))
