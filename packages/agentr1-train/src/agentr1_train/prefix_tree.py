"""Sequences of token ids become prefix trees: what two of them have in common from the start on stands there once.

A step repeats the history before it, and the trajectories of a group repeat their prompt. In a tree each distinct
token, which is a token together with everything before it, has one position; its depth is its place in every sequence
that goes through it. Positions are numbered depth-first, so that the tokens below a token follow it without a gap.

Plain integers and arrays: nothing here knows a tensor, a loss or a model.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
_Run = tuple[int, int]
"""Ranks from the first on, before the second."""


class Segment(NamedTuple):
    """A chain of positions without a branch, and what hangs below it."""

    start: int
    end: int
    """Past the chain's last position."""
    subtree_end: int
    """Past the last position below the chain; equal to ``end`` at a leaf."""


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """The distinct tokens of some sequences, depth-first. Sequences that share no first token make a forest."""

    sequences: tuple[int, ...]
    """Index of each sequence, in the order in which the tree meets their ends."""
    token_ids: Ids
    """Shape: (N,)."""
    depths: Ids
    """Tokens before each one on its path, which is its position id. Shape: (N,)."""
    paths: tuple[Ids, ...]
    """For each of ``sequences``, the positions of its tokens. Shape: ragged, one a token."""
    segments: tuple[Segment, ...]
    """Ordered by ``start``; they cover 0 .. N - 1."""

    def __len__(self) -> int:
        return len(self.token_ids)


def plant(
    sequences: Sequence[Sequence[int]], budget: int, units: Sequence[Sequence[int]] | None = None
) -> list[PrefixTree]:
    """Lay sequences into trees of at most ``budget`` distinct tokens.

    Where one tree would be larger, the sequences are cut apart where as few tokens as possible are computed twice and,
    among equals, into as few trees as possible: the best cuts, found by dynamic programming, of two depth-first orders,
    that of the ids and one in which branches that fill a tree stand side by side (first fit, largest first). Not every
    order is searched: that contains bin packing, which is NP-hard. Sequences of one unit share a tree, whatever its
    size.

    Args:
        sequences: token ids, each at least one.
        budget: bound on the tokens of a tree; a unit that is larger stands alone.
        units: indices of sequences that must not part; by default each is alone.
    """
    if not sequences:
        return []
    units = units or [[at] for at in range(len(sequences))]
    shelf = _Shelf.by_ids(sequences)
    plan = _cuts(shelf, units, budget)
    if len(plan.trees) > 1:
        plan = min(plan, _cuts(shelf.side_by_side(budget), units, budget), key=lambda found: found.cost)
    return [shelf.tree(indices) for indices in plan.trees]


class _Plan(NamedTuple):
    """How sequences are parted."""

    cost: tuple[int, int]
    """Tokens of all trees, and how many trees there are."""
    trees: list[list[int]]
    """Indices of the sequences of each."""


class _Shelf:
    """Sequences in a depth-first order of their tree, and how much each has in common with the one before it."""

    def __init__(self, order: list[int], ids: list[Ids], common: list[int]) -> None:
        """Take indices of sequences, those sequences, and tokens shared with the one before; each of shape (S,)."""
        self.order, self.ids, self._common = order, ids, common
        self.rank_of = {at: rank for rank, at in enumerate(order)}
        self._grown = np.cumsum([len(own) - shared for own, shared in zip(ids, common, strict=True)]).tolist()

    @classmethod
    def by_ids(cls, sequences: Sequence[Sequence[int]]) -> Self:
        """Order sequences as their ids are."""
        given = [np.array(ids, dtype=np.int64) for ids in sequences]
        keys = [ids.astype(">u4").tobytes() for ids in given]  # bytes compare as the ids do, and faster
        order = sorted(range(len(given)), key=keys.__getitem__)
        ids = [given[at] for at in order]
        return cls(order, ids, [0, *(_common_prefix(a, b) for a, b in pairwise(ids))])

    def common(self, first: int, second: int) -> int:
        """Return how many leading tokens two ranks share, ``first < second``."""
        return min(self._common[first + 1 : second + 1])

    def size(self, first: int, last: int) -> int:
        """Return the distinct tokens of the ranks from ``first`` to before ``last``."""
        return self._grown[last - 1] - self._grown[first] + len(self.ids[first])

    def side_by_side(self, budget: int) -> "_Shelf":
        """Order the children of each branch that is too large for one tree so that runs of them fill trees.

        Children too large themselves come first, each ordered in the same way; then the others in bins, the emptiest
        first. What ends at the branch fits anywhere and comes last.
        """
        ranks: list[int] = []
        pending = [(0, len(self.ids))]
        while pending:
            first, last = pending.pop()
            if last - first == 1 or self.size(first, last) <= budget:
                ranks += range(first, last)
                continue
            depth = self.common(first, last - 1)
            starts = [first, *(rank for rank in range(first + 1, last) if self._common[rank] == depth), last]
            children = [(self.size(*child), child) for child in pairwise(starts)]
            large = [child for tokens, child in children if tokens > budget]
            bins = _first_fit([child for child in children if child[0] <= budget], budget, depth)
            pending += reversed(large + [child for held in reversed(bins) for child in held])
        common = [0, *(self.common(min(pair), max(pair)) for pair in pairwise(ranks))]
        return _Shelf([self.order[rank] for rank in ranks], [self.ids[rank] for rank in ranks], common)

    def tree(self, indices: Sequence[int]) -> PrefixTree:
        """Return the tree of some sequences; by ids, so that one that ends stands before those that go on there."""
        size, before, previous = 0, np.empty(0, np.int64), None
        starts = {0}
        token_ids, depths, paths = [], [], []
        ranks = sorted(self.rank_of[at] for at in indices)
        for rank in ranks:
            ids = self.ids[rank]
            shared = 0 if previous is None else self.common(previous, rank)
            path = np.concatenate([before[:shared], np.arange(size, size + len(ids) - shared)])
            if shared < min(len(ids), len(before)):  # the tree branches here
                starts |= {size, int(before[shared])}
            token_ids.append(ids[shared:])
            depths.append(np.arange(shared, len(ids)))
            paths.append(path)
            size, before, previous = size + len(ids) - shared, path, rank
        depth = np.concatenate(depths)
        return PrefixTree(
            sequences=tuple(self.order[rank] for rank in ranks),
            token_ids=np.concatenate(token_ids),
            depths=depth,
            paths=tuple(paths),
            segments=_segments(sorted(starts), depth),
        )


def _first_fit(children: Sequence[tuple[int, _Run]], budget: int, depth: int) -> list[list[_Run]]:
    """Return bins of at most ``budget`` tokens for children that share ``depth`` of them: largest first."""
    bins: list[list[_Run]] = []
    room: list[int] = []
    for tokens, child in sorted(children, key=lambda child: (-child[0], child[1])):
        at = next((at for at, left in enumerate(room) if tokens - depth <= left), len(bins))
        if at == len(bins):
            bins.append([])
            room.append(budget - depth)
        bins[at].append(child)
        room[at] -= tokens - depth
    return bins


def _common_prefix(a: Ids, b: Ids) -> int:
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    first = int(differs.argmax()) if length else 0
    return first if length and differs[first] else length


def _segments(starts: Sequence[int], depths: Ids) -> tuple[Segment, ...]:
    """Close every chain where the next begins, and its subtree where a later chain begins no deeper than it does."""
    bounds = [*starts, len(depths)]
    below = [len(depths)] * len(starts)
    open_chains: list[int] = []
    for at, start in enumerate(starts):
        while open_chains and depths[start] <= depths[starts[open_chains[-1]]]:
            below[open_chains.pop()] = start
        open_chains.append(at)
    return tuple(Segment(start, end, stop) for (start, end), stop in zip(pairwise(bounds), below, strict=True))


def _cuts(shelf: _Shelf, units: Sequence[Sequence[int]], budget: int) -> _Plan:
    """Return the runs of units that share a tree: fewest tokens in all, then fewest trees (dynamic programming)."""
    groups = sorted(sorted(shelf.rank_of[at] for at in unit) for unit in units)
    best = [(0, 0, 0)]
    """Tokens and trees of the first groups, and where the last of their trees begins."""
    for last in range(1, len(groups) + 1):
        found = (0, 0, -1)
        for first, size in _sizes(shelf, groups, last):
            if size > budget and first < last - 1:
                break
            tokens, trees, _ = best[first]
            if found[2] < 0 or (tokens + size, trees + 1) < found[:2]:
                found = (tokens + size, trees + 1, first)
        best.append(found)
    trees = []
    last = len(groups)
    while last:
        first = best[last][2]
        trees.append([shelf.order[rank] for group in groups[first:last] for rank in group])
        last = first
    return _Plan(best[-1][:2], trees[::-1])


def _sizes(shelf: _Shelf, groups: Sequence[Sequence[int]], last: int) -> Iterator[tuple[int, int]]:
    """Yield each earlier group, backwards, and the tokens of a tree from it to before ``last``."""
    end = groups[last - 1][-1] + 1
    run = end  # as long as the groups are one run of ranks, sizes are differences
    held: list[int] | None = None
    size = 0
    for first in range(last - 1, -1, -1):
        group = groups[first]
        if held is None and (group[0], group[-1]) == (run - len(group), run - 1):
            run = group[0]
            size = shelf.size(run, end)
        else:
            held = list(range(run, end)) if held is None else held
            for rank in group:
                size += _growth(shelf, held, rank)
        yield first, size


def _growth(shelf: _Shelf, held: list[int], rank: int) -> int:
    """Add a rank to those of a tree, ascending, and return by how many tokens the tree grows."""
    at = bisect_left(held, rank)
    left = shelf.common(held[at - 1], rank) if at else 0
    right = shelf.common(rank, held[at]) if at < len(held) else 0
    held.insert(at, rank)
    return len(shelf.ids[rank]) - max(left, right)
