"""Group-in-group advantage (GiGPO, arXiv 2505.10978): the trajectory against its group, and the step against its like.

Steps of one group that met the same state (``state_keys``) did different things there and went on to different returns:
each is measured against the mean of those. A state met once tells nothing and adds 0.
"""

from collections import defaultdict
from collections.abc import Sequence

from agentr1_train import ops
from agentr1_train.advantages.base import returns_by_group
from agentr1_train.advantages.branches import first_plays, share
from agentr1_train.advantages.records import Credit, CreditTrajectory


def gigpo(
    trajectories: Sequence[CreditTrajectory], *, gamma: float, step_weight: float = 1.0, divide_by_std: bool = True
) -> Credit:
    """Return ``A_E + step_weight A_S``.

    ``A_E = (R - mean_g) / F`` with a group of one keeping its return; ``A_S = (G_t - mean) / F`` over the steps of the
    group with the same state key. F is ``std + 1e-6``, or 1 without ``divide_by_std``.
    """
    episode = {
        index: _moments(found, divide_by_std) if len(found) > 1 else (0.0, 1.0)
        for index, found in returns_by_group(trajectories).items()
    }
    to_go = share(trajectories, tuple(tuple(ops.discounted_sums(item.rewards, gamma)) for item in trajectories))
    alike: dict[tuple[int, str], list[float]] = defaultdict(list)
    for item, sums, counts in zip(trajectories, to_go, first_plays(trajectories), strict=True):
        for key, value, counted in zip(item.state_keys, sums, counts, strict=True):
            if counted:
                alike[item.group, key].append(value)
    state = {key: _moments(found, divide_by_std) for key, found in alike.items()}
    rows = []
    for item, sums in zip(trajectories, to_go, strict=True):
        mean, scale = episode[item.group]
        score = (item.total_reward - mean) / scale
        row = []
        for key, value in zip(item.state_keys, sums, strict=True):
            state_mean, state_scale = state[item.group, key]
            row.append(score + step_weight * (value - state_mean) / state_scale)
        rows.append(tuple(row))
    advantages = share(trajectories, tuple(rows))
    return Credit(advantages, returns=None, raw=advantages)


def _moments(values: Sequence[float], divide_by_std: bool) -> tuple[float, float]:
    return ops.mean(values), ops.std(values) + ops.GROUP_EPS if divide_by_std else 1.0
