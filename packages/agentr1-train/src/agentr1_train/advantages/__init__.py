"""Credit assignment on steps, one file an estimator."""

from agentr1_train.advantages.base import flat_groups
from agentr1_train.advantages.branches import counted_lengths
from agentr1_train.advantages.records import Credit, CreditTrajectory, TokenCredit
from agentr1_train.advantages.registry import ESTIMATORS, estimate
from agentr1_train.advantages.shaping import overlong_penalty, permute_rewards, subtract_kl

__all__ = [
    "ESTIMATORS",
    "Credit",
    "CreditTrajectory",
    "TokenCredit",
    "counted_lengths",
    "estimate",
    "flat_groups",
    "overlong_penalty",
    "permute_rewards",
    "subtract_kl",
]
