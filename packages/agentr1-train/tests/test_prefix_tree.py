"""Trees of token ids: sequences can be read back, a distinct token stands once, cuts share as little as can be."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from agentr1_train.prefix_tree import PrefixTree, Segment, plant
from hypothesis import given, settings
from hypothesis import strategies as st

ids = st.lists(st.integers(0, 2), min_size=1, max_size=7)
sequences = st.lists(ids, min_size=1, max_size=14)


def distinct(found: Sequence[Sequence[int]]) -> int:
    """Tokens that differ, a token being itself and everything before it."""
    return len({tuple(ids[: at + 1]) for ids in found for at in range(len(ids))})


def test_layout_of_a_small_tree() -> None:
    (tree,) = plant([[5, 6], [5, 6, 7], [5, 6, 8, 9], [4]], budget=100)
    assert tree.sequences == (3, 0, 1, 2)
    assert tree.token_ids.tolist() == [4, 5, 6, 7, 8, 9]
    assert tree.depths.tolist() == [0, 0, 1, 2, 2, 3]
    assert [path.tolist() for path in tree.paths] == [[0], [1, 2], [1, 2, 3], [1, 2, 4, 5]]
    assert tree.segments == (Segment(0, 1, 1), Segment(1, 3, 6), Segment(3, 4, 4), Segment(4, 6, 6))


def test_a_sequence_that_goes_on_is_no_branch() -> None:
    (tree,) = plant([[1, 2, 3, 4], [1], [1, 2, 3]], budget=100)
    assert tree.segments == (Segment(0, 4, 4),)
    assert len(tree) == 4


@settings(max_examples=150, deadline=None)
@given(sequences, st.integers(1, 40))
def test_every_sequence_can_be_read_back(found: list[list[int]], budget: int) -> None:
    trees = plant(found, budget)
    assert sorted(at for tree in trees for at in tree.sequences) == list(range(len(found)))
    for tree in trees:
        assert len(tree) == distinct([found[at] for at in tree.sequences])
        assert len(tree) <= budget or len(tree.sequences) == 1
        for at, path in zip(tree.sequences, tree.paths, strict=True):
            assert tree.token_ids[path].tolist() == found[at]
            assert tree.depths[path].tolist() == list(range(len(found[at])))


@settings(max_examples=150, deadline=None)
@given(sequences, st.integers(1, 40))
def test_segments_are_chains_without_a_branch(found: list[list[int]], budget: int) -> None:
    for tree in plant(found, budget):
        children = _children(tree)
        assert [chain.start for chain in tree.segments] == [0, *(chain.end for chain in tree.segments[:-1])]
        assert tree.segments[-1].end == len(tree)
        for chain in tree.segments:
            assert all(children[at] == {at + 1} for at in range(chain.start, chain.end - 1))
            assert len(children[chain.end - 1]) != 1  # else the chain could be longer
            below = {at for path in tree.paths if chain.start in path for at in path.tolist() if at >= chain.start}
            assert below == set(range(chain.start, chain.subtree_end))


def _children(tree: PrefixTree) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(len(tree))]
    for path in tree.paths:
        for parent, child in pairwise(path.tolist()):
            found[parent].add(child)
    return found


@settings(max_examples=100, deadline=None)
@given(st.lists(ids, min_size=1, max_size=8), st.integers(3, 20))
def test_cuts_recompute_no_more_tokens_than_any_cut_of_sorted_sequences(found: list[list[int]], budget: int) -> None:
    ordered = sorted(found)
    runs = (
        [ordered[a:b] for a, b in pairwise((0, *cuts, len(ordered)))]
        for count in range(len(ordered))
        for cuts in combinations(range(1, len(ordered)), count)
    )
    trees = plant(found, budget)
    assert (sum(map(len, trees)), len(trees)) <= min(costs(runs, budget))


def one_answer_each(draw: random.Random) -> list[list[int]]:
    return [[0] * 5 + [at] * draw.randint(1, 9) for at in range(1, draw.randint(3, 8))]


def up_to_two_steps_each(draw: random.Random) -> list[list[int]]:
    """Appended to the conversation; some say the same at first."""
    prompt, rows = [0] * draw.randint(3, 10), []
    for member in (1, 2, 3):
        history = prompt + [member] * draw.randint(0, 3)
        for step in range(draw.randint(1, 2)):
            said = [10 * member + step] * draw.randint(1, 5)
            rows.append(history + said)
            history = history + said + [50] * draw.randint(1, 4)
    return rows


@pytest.mark.parametrize("group", [one_answer_each, up_to_two_steps_each])
def test_cuts_are_seldom_worse_than_the_best_parting(group: Callable[[random.Random], list[list[int]]]) -> None:
    """Against every way to part the rows of a small group, in sorted order or not."""
    draw = random.Random(0)
    best = 0
    for _ in range(50):
        found, budget = group(draw), draw.randint(14, 30)
        trees = plant(found, budget)
        ours, bound = (sum(map(len, trees)), len(trees)), min(costs(partings(found), budget))
        assert ours >= bound
        best += ours == bound
    assert best >= 48


def test_branches_that_fill_a_tree_stand_side_by_side() -> None:
    """In the order of their ids the four answers need three trees, and the prompt a third time."""
    found = [[0] * 50 + [at] * length for at, length in enumerate((6, 6, 4, 4), 1)]
    trees = plant(found, 60)
    assert sorted(sorted(tree.sequences) for tree in trees) == [[0, 2], [1, 3]]
    deeper = [[9] * 20 + ids for ids in found] + [[9] * 20 + [8] * 61]  # the branch is below another
    assert sum(map(len, plant(deeper, 81))) == 2 * 80 + 81


def costs(partings: Iterable[Sequence[Sequence[list[int]]]], budget: int) -> Iterator[tuple[int, int]]:
    """Tokens and trees of each parting that keeps to the budget."""
    for parts in partings:
        if all(distinct(part) <= budget or len(part) == 1 for part in parts):
            yield sum(map(distinct, parts)), len(parts)


def partings(found: list[list[int]]) -> Iterator[list[list[list[int]]]]:
    """Every way to part a list into sets."""
    if not found:
        yield []
        return
    first, *rest = found
    for parts in partings(rest):
        yield [[first], *parts]
        for at, part in enumerate(parts):
            yield [*parts[:at], [first, *part], *parts[at + 1 :]]


@pytest.mark.parametrize("budget", [1, 6, 100])
def test_units_stay_together(budget: int) -> None:
    found = [[1, 2, 3], [1, 2, 4], [7, 8], [1, 2, 3, 5], [7, 9], [6]]
    units = [[0, 4], [1, 3], [2], [5]]
    trees = plant(found, budget, units)
    homes = [next(n for n, tree in enumerate(trees) if at in tree.sequences) for at in range(len(found))]
    assert all(len({homes[at] for at in unit}) == 1 for unit in units)
    for tree in trees:
        assert len(tree) == distinct([found[at] for at in tree.sequences])
        assert len(tree) <= max(budget, 5)
    assert len({homes[unit[0]] for unit in units}) == len(trees)


def test_nothing_and_large_ids() -> None:
    assert plant([], 10) == []
    (tree,) = plant([[200_000, 3], [70_000], [200_000, 1]], 10)
    assert tree.token_ids.tolist() == [70_000, 200_000, 1, 3]
    assert tree.token_ids.dtype == np.int64


def test_equal_sequences_share_everything() -> None:
    (tree,) = plant([[1, 2]] * 8, budget=2)
    assert len(tree) == 2
    assert len(tree.sequences) == 8


def test_the_order_of_what_is_given_changes_no_tree() -> None:
    found: list[Any] = [[1, 2, 3], [1, 2], [4], [1, 5]]
    one, other = plant(found, 4), plant(found[::-1], 4)
    assert [tree.token_ids.tolist() for tree in one] == [tree.token_ids.tolist() for tree in other]
