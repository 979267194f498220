"""What happens to rewards before credit is assigned: KL as a cost, and the control that takes the signal away.

KL as a term of the loss is in ``losses.py``.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from agentr1_train.advantages.base import CreditTrajectory


def subtract_kl(rewards: Sequence[float], kl: Sequence[float], coef: float) -> tuple[float, ...]:
    """Return ``r_t - coef k1_t``. Shape: (T,), (T,) -> (T,).

    ``k1_t`` is the sum over the step's tokens of ``log pi_old - log pi_ref``: the step is one action, and the
    log-probability of an action is the sum over its tokens. An empty response costs nothing.
    """
    return tuple(reward - coef * cost for reward, cost in zip(rewards, kl, strict=True))


def permute_rewards(
    trajectories: Sequence[CreditTrajectory], over: Literal["batch", "group"], seed: int
) -> list[CreditTrajectory]:
    """Let trajectories exchange their rewards, over the batch or inside each group: a control that must not learn.

    Between trajectories of unequal lengths rewards are aligned at the end, and what finds no step is added to the
    first, so that returns are exchanged as they are. The result depends on ``seed`` and on (group, member), not on the
    order given.
    """
    order = sorted(range(len(trajectories)), key=lambda i: (trajectories[i].group, trajectories[i].member))
    blocks: dict[int, list[int]] = {}
    for index in order:
        blocks.setdefault(trajectories[index].group if over == "group" else 0, []).append(index)
    generator, permuted = random.Random(seed), list(trajectories)
    for block in blocks.values():
        donors = generator.sample(block, len(block))
        for receiver, donor in zip(block, donors, strict=True):
            rewards = _aligned(trajectories[donor].rewards, len(trajectories[receiver].rewards))
            permuted[receiver] = replace(trajectories[receiver], rewards=rewards)
    return permuted


def _aligned(rewards: tuple[float, ...], steps: int) -> tuple[float, ...]:
    """Return ``steps`` rewards with the same sum, the last reward last."""
    if steps == 0:
        return ()
    if len(rewards) < steps:
        return (0.0,) * (steps - len(rewards)) + rewards
    surplus = len(rewards) - steps
    return (sum(rewards[: surplus + 1]), *rewards[surplus + 1 :])
