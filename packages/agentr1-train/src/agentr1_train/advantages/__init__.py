"""Credit assignment on steps, one file an estimator."""

from agentr1_train.advantages.base import Credit, CreditTrajectory, flat_groups
from agentr1_train.advantages.registry import ESTIMATORS, estimate
from agentr1_train.advantages.shaping import permute_rewards, subtract_kl

__all__ = ["ESTIMATORS", "Credit", "CreditTrajectory", "estimate", "flat_groups", "permute_rewards", "subtract_kl"]
