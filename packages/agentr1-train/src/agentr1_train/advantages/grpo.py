"""Group-relative advantage (GRPO, arXiv 2402.03300, section 4.1.2): the return, standardised inside its group.

The same number goes to each step of a trajectory. A group of one has nothing to compare with and keeps its return.
"""

from collections.abc import Sequence

from agentr1_train import ops
from agentr1_train.advantages.base import returns_by_group, spread
from agentr1_train.advantages.records import Credit, CreditTrajectory


def grpo(trajectories: Sequence[CreditTrajectory]) -> Credit:
    """Return ``(R - mean_g) / (std_g + 1e-6)``, std unbiased."""
    groups = returns_by_group(trajectories)
    moments = {
        index: (ops.mean(found), ops.std(found) + ops.GROUP_EPS) if len(found) > 1 else (0.0, 1.0)
        for index, found in groups.items()
    }
    return spread(trajectories, [(t.total_reward - moments[t.group][0]) / moments[t.group][1] for t in trajectories])
