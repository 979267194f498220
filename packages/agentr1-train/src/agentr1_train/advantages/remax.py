"""ReMax (arXiv 2310.10505): the return of a greedy rollout of the same seed is the baseline.

The greedy rollout is played beside the sampled ones and is not trained on (``collection.py``).
"""

from collections.abc import Sequence

from agentr1_train.advantages.base import spread
from agentr1_train.advantages.records import Credit, CreditTrajectory
from agentr1_train.errors import ConfigError


def remax(trajectories: Sequence[CreditTrajectory]) -> Credit:
    """Return ``R - R_greedy``, the same for each step of a trajectory.

    Raises:
        ConfigError: a trajectory without the return of a greedy rollout.
    """
    scores = []
    for item in trajectories:
        if item.greedy_return is None:
            raise ConfigError(
                f"estimator 'remax' needs a greedy rollout of each seed; group {item.group} has none. "
                "Take an estimator whose baseline is the group: rloo, grpo."
            )
        scores.append(item.total_reward - item.greedy_return)
    return spread(trajectories, scores)
