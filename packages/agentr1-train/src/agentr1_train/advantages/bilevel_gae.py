"""Bi-level GAE (RAGEN, arXiv 2504.20073): GAE over steps, then GAE over the tokens inside each step.

The first level gives each step a return, the second lays it on the step's last token. Steps are found by structure: a
step without reward is a step.
"""

from collections.abc import Sequence

from agentr1_train import ops
from agentr1_train.advantages.base import step_values, token_values
from agentr1_train.advantages.branches import share_tokens
from agentr1_train.advantages.records import CreditTrajectory, TokenCredit


def bilevel_gae(
    trajectories: Sequence[CreditTrajectory],
    *,
    gamma_step: float = 0.95,
    lam_step: float = 1.0,
    gamma: float = 1.0,
    lam: float = 1.0,
    bootstrap_truncated: bool = True,
) -> TokenCredit:
    """Return one advantage a token, not whitened, and ``A + v`` as the critic's targets.

    Inside a step with return ``R_t = A_t + V_t``: reward ``R_t`` on the last token, ``delta_i = r_i + gamma v_{i+1} -
    v_i`` with v after the last token 0, ``A_i = delta_i + gamma lam A_{i+1}``.
    """
    raw, returns = [], []
    for item in trajectories:
        values = step_values(item, "bilevel_gae")
        final_value = item.final_value if item.truncated and bootstrap_truncated else 0.0
        advantages = ops.gae(item.rewards, values, final_value, gamma_step, lam_step)
        rows, targets = [], []
        for advantage, value, tokens in zip(advantages, values, token_values(item, "bilevel_gae"), strict=True):
            rewards = [0.0] * (len(tokens) - 1) + [advantage + value] if tokens else []
            inner = ops.gae(rewards, tokens, 0.0, gamma, lam)
            rows.append(tuple(inner))
            targets.append(tuple(a + v for a, v in zip(inner, tokens, strict=True)))
        raw.append(tuple(rows))
        returns.append(tuple(targets))
    advantages = share_tokens(trajectories, tuple(raw))
    return TokenCredit(advantages, share_tokens(trajectories, tuple(returns)), raw=advantages)
