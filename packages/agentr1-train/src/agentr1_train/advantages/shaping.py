"""What happens to rewards before credit is assigned: KL and length as costs, and the control without a signal.

KL as a term of the loss is in ``losses.py``.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from agentr1_train.advantages.records import CreditTrajectory


def subtract_kl(rewards: Sequence[float], kl: Sequence[float], coef: float) -> tuple[float, ...]:
    """Return ``r_t - coef k1_t``. Shape: (T,), (T,) -> (T,).

    ``k1_t`` is the sum over the step's tokens of ``log pi_old - log pi_ref``: the step is one action, and the
    log-probability of an action is the sum over its tokens. An empty response costs nothing.
    """
    return tuple(reward - coef * cost for reward, cost in zip(rewards, kl, strict=True))


def overlong_penalty(length: int, longest: int, share: float) -> float:
    """Return what a response of ``length`` tokens is charged (DAPO's overlong punishment, arXiv 2503.14476, eq. 13).

    0 up to ``longest - buffer``, then linear to -1 at ``longest``, with a buffer of ``share * longest`` tokens. Ours: a
    response is a step's, and DAPO's buffer of 4096 of 20480 tokens is a share, 0.2.
    """
    buffer = share * longest
    over = length - (longest - buffer)
    return -min(1.0, over / buffer) if over > 0 else 0.0


def permute_rewards(
    trajectories: Sequence[CreditTrajectory], over: Literal["batch", "group"], seed: int
) -> list[CreditTrajectory]:
    """Let trajectories exchange their rewards, over the batch or inside each group: a control that must not learn.

    Between trajectories of unequal lengths rewards are aligned at the end, and what finds no step is added to the
    first, so that returns are exchanged as they are. Reward streams go with the rewards. The result depends on ``seed``
    and on (group, member), not on the order given.
    """
    order = sorted(range(len(trajectories)), key=lambda i: (trajectories[i].group, trajectories[i].member))
    blocks: dict[int, list[int]] = {}
    for index in order:
        blocks.setdefault(trajectories[index].group if over == "group" else 0, []).append(index)
    generator, permuted = random.Random(seed), list(trajectories)
    for block in blocks.values():
        donors = generator.sample(block, len(block))
        for receiver, donor in zip(block, donors, strict=True):
            permuted[receiver] = _paid_as(trajectories[receiver], trajectories[donor])
    return permuted


def _paid_as(receiver: CreditTrajectory, donor: CreditTrajectory) -> CreditTrajectory:
    steps = len(receiver.rewards)
    parts = {name: _aligned(part, steps) for name, part in donor.parts.items()}
    return replace(receiver, rewards=_aligned(donor.rewards, steps), parts=parts)


def _aligned(rewards: tuple[float, ...], steps: int) -> tuple[float, ...]:
    """Return ``steps`` rewards with the same sum, the last reward last."""
    if steps == 0:
        return ()
    if len(rewards) < steps:
        return (0.0,) * (steps - len(rewards)) + rewards
    surplus = len(rewards) - steps
    return (sum(rewards[: surplus + 1]), *rewards[surplus + 1 :])
