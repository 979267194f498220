"""GAE whose unit of time is the step (Agent-R1, arXiv 2511.14460; StepPO, arXiv 2604.18401; GAE, arXiv 1506.02438).

The critic reads one value a step, at the last prompt token, where the policy is about to act; tokens take no part.
Ours: a truncated trajectory bootstraps on the critic's value of the prompt that would have followed
(``bootstrap_truncated``, default true). Agent-R1 takes 0 there, as if the task had ended.
"""

from collections.abc import Sequence

from agentr1_train import ops
from agentr1_train.advantages.base import step_values, whitened
from agentr1_train.advantages.records import Credit, CreditTrajectory


def step_gae(
    trajectories: Sequence[CreditTrajectory], *, gamma: float, lam: float, bootstrap_truncated: bool
) -> Credit:
    """Return whitened advantages and, as the critic's targets, ``A_t + V_t`` before whitening."""
    raw, returns = [], []
    for item in trajectories:
        values = step_values(item, "step_gae")
        final_value = item.final_value if item.truncated and bootstrap_truncated else 0.0
        advantages = ops.gae(item.rewards, values, final_value, gamma, lam)
        raw.append(tuple(advantages))
        returns.append(tuple(advantage + value for advantage, value in zip(advantages, values, strict=True)))
    return whitened(trajectories, tuple(raw), tuple(returns))
