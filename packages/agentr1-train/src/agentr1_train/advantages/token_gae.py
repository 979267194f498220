"""GAE whose unit of time is the token: the trained tokens of all steps laid end to end (Agent-R1, arXiv 2511.14460).

The last token of a step bootstraps from the first token of the next; what the environment wrote between them takes no
time. A step's reward is on its last token. Ours: the reward of an empty response is on the last token before it, and a
truncated trajectory bootstraps on the value of the prompt that would have followed.
"""

from collections.abc import Sequence

from agentr1_train import ops
from agentr1_train.advantages.base import token_values
from agentr1_train.advantages.branches import first_plays, share_tokens
from agentr1_train.advantages.records import CreditTrajectory, TokenCredit, TokenFloats


def token_gae(
    trajectories: Sequence[CreditTrajectory], *, gamma: float, lam: float, bootstrap_truncated: bool
) -> TokenCredit:
    """Return advantages whitened over all tokens of the batch; the critic's targets are ``A + V`` before whitening."""
    raw, returns = [], []
    for item in trajectories:
        steps = token_values(item, "token_gae")
        values = [value for step in steps for value in step]
        final_value = item.final_value if item.truncated and bootstrap_truncated else 0.0
        advantages = ops.gae(_token_rewards(item), values, final_value, gamma, lam)
        raw.append(ops.unflatten(advantages, steps))
        targets = (advantage + value for advantage, value in zip(advantages, values, strict=True))
        returns.append(ops.unflatten(targets, steps))
    shared = share_tokens(trajectories, tuple(raw))
    return TokenCredit(_whitened(trajectories, shared), share_tokens(trajectories, tuple(returns)), shared)


def _whitened(trajectories: Sequence[CreditTrajectory], raw: TokenFloats) -> TokenFloats:
    values = [value for item in raw for step in item for value in step]
    counts = [
        int(first)
        for row, item in zip(first_plays(trajectories), raw, strict=True)
        for first, step in zip(row, item, strict=True)
        for _ in step
    ]
    centre, scale = ops.weighted_moments(values, counts)
    return tuple(tuple(tuple((value - centre) / scale for value in step) for step in item) for item in raw)


def _token_rewards(item: CreditTrajectory) -> list[float]:
    """Return one reward a token. Shape: (sum of lengths,)."""
    rewards = [0.0] * sum(item.lengths)
    end = 0
    for reward, length in zip(item.rewards, item.lengths, strict=True):
        end += length
        if end:
            rewards[end - 1] += reward
    return rewards
