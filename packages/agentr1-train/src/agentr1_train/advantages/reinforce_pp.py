"""REINFORCE++ (arXiv 2501.03262): reward to go with KL in the reward, whitened over the batch, without a critic.

Whitening is over trained tokens, so a step counts as often as it has tokens. Ours: reward to go runs over the steps of
a trajectory, so a reward at the end reaches the first step.
"""

from collections.abc import Sequence

from agentr1_train import ops
from agentr1_train.advantages.base import centred_returns, spread, whitened_by_tokens
from agentr1_train.advantages.records import Credit, CreditTrajectory


def reinforce_pp(trajectories: Sequence[CreditTrajectory], *, gamma: float) -> Credit:
    """Return ``G_t = r_t + gamma G_{t+1}``, whitened over tokens."""
    raw = tuple(tuple(ops.discounted_sums(item.rewards, gamma)) for item in trajectories)
    return whitened_by_tokens(trajectories, raw)


def reinforce_pp_baseline(trajectories: Sequence[CreditTrajectory]) -> Credit:
    """Return ``R - mean_g``, the same for each step, whitened over tokens."""
    return whitened_by_tokens(trajectories, spread(trajectories, centred_returns(trajectories)).raw)
