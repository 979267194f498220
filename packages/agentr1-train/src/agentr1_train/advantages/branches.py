"""Steps that several trajectories have in common, because their episode branched: one step each, credited once.

A branch repeats the steps before it (``CreditTrajectory.nodes`` says where each was played first). Every trajectory is
a member of its group, as in ARPO (arXiv 2507.19849); a step in common gets the mean of what its trajectories give it
(ARPO's hard estimate). Ours: the mean is over the branches at each branching point, so that a branch which branched
again counts no more than its sibling; and the step counts once, in whitening, in losses and in their denominators.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from agentr1_train.advantages.records import CreditTrajectory, StepFloats, TokenFloats

_T = TypeVar("_T")
_Node = tuple[int, int, int]
"""(group, member that played it first, step)."""


def share(trajectories: Sequence[CreditTrajectory], values: StepFloats) -> StepFloats:
    """Give each step in common the mean over its trajectories. Shape: ragged, one float a step, in and out."""

    def mean(found: Sequence[float], weights: Sequence[float]) -> float:
        return math.fsum(value * weight for value, weight in zip(found, weights, strict=True)) / math.fsum(weights)

    return _joined(trajectories, values, mean)


def share_tokens(trajectories: Sequence[CreditTrajectory], values: TokenFloats) -> TokenFloats:
    """``share`` for one float a token: token by token. Shape: ragged, one float a token, in and out."""

    def mean(found: Sequence[tuple[float, ...]], weights: Sequence[float]) -> tuple[float, ...]:
        total = math.fsum(weights)
        columns = zip(*found, strict=True)
        return tuple(math.fsum(v * w for v, w in zip(column, weights, strict=True)) / total for column in columns)

    return _joined(trajectories, values, mean)


def first_plays(trajectories: Sequence[CreditTrajectory]) -> tuple[tuple[bool, ...], ...]:
    """Return which steps count: each step in common with its first trajectory, by (group, member), and nowhere else."""
    owner: dict[_Node, int] = {}
    for item in sorted(trajectories, key=lambda item: (item.group, item.member)):
        for node in _nodes(item):
            owner.setdefault(node, item.member)
    return tuple(tuple(owner[node] == item.member for node in _nodes(item)) for item in trajectories)


def counted_lengths(trajectories: Sequence[CreditTrajectory]) -> list[tuple[int, ...]]:
    """Return the trained tokens of each step, 0 where the step counts with another trajectory."""
    return [
        tuple(length if first else 0 for length, first in zip(item.lengths, row, strict=True))
        for item, row in zip(trajectories, first_plays(trajectories), strict=True)
    ]


def path_weights(trajectories: Sequence[CreditTrajectory]) -> list[float]:
    """Return each trajectory's part of its episode: at every branching point it is divided by the branches there.

    The parts of one episode sum to 1, and so do those of the trajectories behind any step, once divided by their sum.
    """
    following: dict[_Node, set[_Node]] = defaultdict(set)
    for item in trajectories:
        nodes = _nodes(item)
        for node, after in itertools.pairwise(nodes):
            following[node].add(after)
    return [math.prod(1 / max(1, len(following[node])) for node in _nodes(item)) for item in trajectories]


def _joined(
    trajectories: Sequence[CreditTrajectory],
    values: Sequence[Sequence[_T]],
    join: Callable[[Sequence[_T], Sequence[float]], _T],
) -> tuple[tuple[_T, ...], ...]:
    if not any(item.nodes for item in trajectories):
        return tuple(map(tuple, values))
    found: dict[_Node, list[tuple[_T, float]]] = defaultdict(list)
    for (node, value), weight in _each(trajectories, values, path_weights(trajectories)):
        found[node].append((value, weight))
    joined = {
        node: pairs[0][0] if len(pairs) == 1 else join(*zip(*pairs, strict=True)) for node, pairs in found.items()
    }
    return tuple(tuple(joined[node] for node in _nodes(item)) for item in trajectories)


def _each(
    trajectories: Sequence[CreditTrajectory], values: Sequence[Sequence[_T]], weights: Sequence[float]
) -> Iterator[tuple[tuple[_Node, _T], float]]:
    for item, row, weight in zip(trajectories, values, weights, strict=True):
        for pair in zip(_nodes(item), row, strict=True):
            yield pair, weight


def _nodes(item: CreditTrajectory) -> list[_Node]:
    played = item.nodes or ((item.member, step) for step in range(len(item.rewards)))
    return [(item.group, member, step) for member, step in played]
