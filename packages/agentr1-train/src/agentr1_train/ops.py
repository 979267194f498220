"""Arithmetic that credit assignment is made of: sums over time, means and whitening, on plain floats.

Lists here are ragged and short (one number a step), so there is no tensor. Every sum is ``math.fsum``, which rounds
once: the order of trajectories, and the rank they came from, cannot change a result by a bit.
Token-level arithmetic on tensors is in ``losses.py``.
"""

import math
from collections.abc import Iterable, Sequence

WHITEN_EPS = 1e-8
"""Added to the standard deviation over the batch."""
GROUP_EPS = 1e-6
"""Added to the standard deviation inside a group."""


def mean(values: Sequence[float]) -> float:
    """Return the mean; 0 of nothing."""
    return math.fsum(values) / len(values) if values else 0.0


def std(values: Sequence[float]) -> float:
    """Return the unbiased standard deviation; 0 of fewer than two values."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def whiten(values: Sequence[float]) -> list[float]:
    """Return ``(x - mean) / (std + 1e-8)``; fewer than two values come back unchanged."""
    if len(values) < 2:
        return list(values)
    centre, scale = mean(values), std(values) + WHITEN_EPS
    return [(value - centre) / scale for value in values]


def weighted_moments(values: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """Return mean and ``std + 1e-8`` of values that occur ``counts`` times each; 0 and 1 of fewer than two in all."""
    total = sum(counts)
    if total < 2:
        return 0.0, 1.0
    pairs = list(zip(values, counts, strict=True))
    centre = math.fsum(value * count for value, count in pairs) / total
    variance = math.fsum(count * (value - centre) ** 2 for value, count in pairs) / (total - 1)
    return centre, math.sqrt(variance) + WHITEN_EPS


def whiten_ragged(rows: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """Whiten over all values of all rows together. Shape: ragged in, the same shape out."""
    return unflatten(whiten([value for row in rows for value in row]), rows)


def unflatten(values: Iterable[float], like: Sequence[Sequence[object]]) -> tuple[tuple[float, ...], ...]:
    """Cut ``values`` into rows of the lengths that the rows of ``like`` have."""
    iterator = iter(values)
    return tuple(tuple(next(iterator) for _ in row) for row in like)


def discounted_sums(rewards: Sequence[float], gamma: float) -> list[float]:
    """Return the reward to go, ``G_t = r_t + gamma G_{t+1}``. Shape: (T,) -> (T,)."""
    sums, following = [0.0] * len(rewards), 0.0
    for index in reversed(range(len(rewards))):
        following = sums[index] = rewards[index] + gamma * following
    return sums


def gae(rewards: Sequence[float], values: Sequence[float], final_value: float, gamma: float, lam: float) -> list[float]:
    """Generalized advantage estimation (Schulman et al. 2015, arXiv 1506.02438, equation 16).

    ``delta_t = r_t + gamma V_{t+1} - V_t`` and ``A_t = delta_t + gamma lam A_{t+1}``, with ``V_T = final_value``.
    Shape: rewards (T,), values (T,) -> (T,).
    """
    advantages, following, next_value = [0.0] * len(rewards), 0.0, final_value
    for index in reversed(range(len(rewards))):
        delta = rewards[index] + gamma * next_value - values[index]
        following = advantages[index] = delta + gamma * lam * following
        next_value = values[index]
    return advantages
