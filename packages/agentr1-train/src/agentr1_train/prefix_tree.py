"""Sequences of token ids become prefix trees: what two of them have in common from the start on stands there once.

A step repeats the history before it, and the trajectories of a group repeat their prompt. In a tree each distinct
token, which is a token together with everything before it, has one position; its depth is its place in every sequence
that goes through it. Positions are numbered depth-first, so that the tokens below a token follow it without a gap.

Plain integers and arrays: nothing here knows a tensor, a loss or a model.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


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

    Where one tree would be larger, the sequences are cut apart, in the order of their ids, where as few tokens as
    possible are computed twice and, among equals, into as few trees as possible. Any subtree is a run in that order;
    other orders of a branch's children are not searched (parting them best is bin packing). Sequences of one unit share
    a tree, whatever its size.

    Args:
        sequences: token ids, each at least one.
        budget: bound on the tokens of a tree; a unit that is larger stands alone.
        units: indices of sequences that must not part; by default each is alone.
    """
    shelf = _Shelf(sequences)
    groups = [[shelf.rank_of[at] for at in unit] for unit in units or [[at] for at in range(len(sequences))]]
    groups = sorted(sorted(group) for group in groups)
    return [
        shelf.tree(sorted(rank for group in groups[first:last] for rank in group))
        for first, last in _cuts(shelf, groups, budget)
    ]


class _Shelf:
    """Sequences in the order of their ids, and how much each has in common with the one before it."""

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        given = [np.array(ids, dtype=np.int64) for ids in sequences]
        keys = [ids.astype(">u4").tobytes() for ids in given]  # bytes compare as the ids do, and faster
        self.order = sorted(range(len(given)), key=keys.__getitem__)
        self.rank_of = {at: rank for rank, at in enumerate(self.order)}
        self.ids = [given[at] for at in self.order]
        self._common = [0, *(_common_prefix(a, b) for a, b in pairwise(self.ids))]

    def common(self, first: int, second: int) -> int:
        """Return how many leading tokens two ranks share, ``first < second``."""
        return min(self._common[first + 1 : second + 1])

    def tree(self, ranks: Sequence[int]) -> PrefixTree:
        """Return the tree of the sequences at ascending ranks."""
        size, before, previous = 0, np.empty(0, np.int64), None
        starts = {0}
        token_ids, depths, paths = [], [], []
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


def _cuts(shelf: _Shelf, groups: Sequence[Sequence[int]], budget: int) -> list[tuple[int, int]]:
    """Return the runs of groups that share a tree: fewest tokens in all, then fewest trees (dynamic programming)."""
    best = [(0, 0, 0)]
    """Tokens and trees of the first groups, and where the last of their trees begins."""
    for last in range(1, len(groups) + 1):
        found, held, size = (0, 0, -1), [], 0
        for first in range(last - 1, -1, -1):
            for rank in groups[first]:
                size += _growth(shelf, held, rank)
            if size > budget and first < last - 1:
                break
            tokens, trees, _ = best[first]
            if found[2] < 0 or (tokens + size, trees + 1) < found[:2]:
                found = (tokens + size, trees + 1, first)
        best.append(found)
    runs = []
    last = len(groups)
    while last:
        runs.append((best[last][2], last))
        last = best[last][2]
    return runs[::-1]


def _growth(shelf: _Shelf, held: list[int], rank: int) -> int:
    """Add a rank to those of a tree, ascending, and return by how many tokens the tree grows."""
    at = bisect_left(held, rank)
    left = shelf.common(held[at - 1], rank) if at else 0
    right = shelf.common(rank, held[at]) if at < len(held) else 0
    held.insert(at, rank)
    return len(shelf.ids[rank]) - max(left, right)
