"""Credit of steps that several trajectories have in common: the mean of what they give it, counted once everywhere."""

from dataclasses import replace
from typing import Any

import pytest
from agentr1_train import ops
from agentr1_train.advantages.branches import counted_lengths, first_plays, path_weights, share, share_tokens
from agentr1_train.advantages.records import Credit, CreditTrajectory, TokenCredit
from agentr1_train.advantages.registry import ESTIMATORS, estimate
from agentr1_train.presets import AlgorithmSettings
from agentr1_train.step_rows import step_rows
from agentr1_train.trajectory import Step, Trajectory, TrajectoryGroup

# A trunk of three steps; a branch off after its first; a branch off that one after its second; a stranger beside them.
NODES = (
    ((0, 0), (0, 1), (0, 2)),
    ((0, 0), (1, 1), (1, 2)),
    ((0, 0), (1, 1), (2, 2)),
    ((3, 0), (3, 1), (3, 2)),
)
RETURNS = (1.0, 3.0, 5.0, 2.0)


def settings(estimator: str) -> AlgorithmSettings:
    return AlgorithmSettings(
        estimator=estimator,
        ratio="token",
        objective="clip",
        aggregation="token_mean",
        needs_critic=True,
        needs_reference=False,
        layer_weights={"task": 1.0},
    )


def batch(**others: Any) -> list[CreditTrajectory]:
    return [
        CreditTrajectory(
            group=0,
            member=member,
            rewards=(0.0, 0.0, paid),
            lengths=(2, 1, 1),
            values=(0.5, 0.25, 0.125),
            token_values=((0.5, 0.5), (0.25,), (0.125,)),
            parts={"task": (0.0, 0.0, paid)},
            greedy_return=0.5,
            state_keys=tuple(f"{owner}{step}" for owner, step in nodes),
            nodes=nodes,
            **others,
        )
        for member, (nodes, paid) in enumerate(zip(NODES, RETURNS, strict=True))
    ]


def test_a_branch_that_branched_again_counts_no_more_than_its_sibling() -> None:
    assert path_weights(batch()) == [1 / 2, 1 / 4, 1 / 4, 1]
    shared = share(batch(), tuple((paid,) * 3 for paid in RETURNS))
    first, second = (1.0 + (3.0 + 5.0) / 2) / 2, (3.0 + 5.0) / 2
    assert shared == ((first, 1, 1), (first, second, 3), (first, second, 5), (2, 2, 2))


def test_without_a_branch_nothing_is_touched() -> None:
    alone = [replace(item, nodes=()) for item in batch()]
    rows = tuple((0.1, 0.2, 0.3) for _ in alone)
    assert share(alone, rows) == rows
    assert counted_lengths(alone) == [item.lengths for item in alone]
    assert all(all(row) for row in first_plays(alone))


def test_a_step_in_common_counts_once() -> None:
    assert first_plays(batch()) == ((True,) * 3, (False, True, True), (False, False, True), (True,) * 3)
    assert counted_lengths(batch()) == [(2, 1, 1), (0, 1, 1), (0, 0, 1), (2, 1, 1)]
    without_trunk = batch()[1:]  # its trajectory failed: another one keeps the step
    assert counted_lengths(without_trunk) == [(2, 1, 1), (0, 0, 1), (2, 1, 1)]
    assert path_weights(without_trunk) == [1 / 2, 1 / 2, 1]


def test_tokens_in_common_are_shared_token_by_token() -> None:
    rows = tuple(((paid, 2 * paid), (paid,), ()) for paid in RETURNS)
    shared = share_tokens(batch(), rows)
    assert shared[0] == ((2.5, 5.0), (1.0,), ())
    assert shared[1] == shared[2] == ((2.5, 5.0), (4.0,), ())


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_gives_a_step_in_common_one_advantage(name: str) -> None:
    """The mean of what its trajectories would get alone, before whitening; and whitening counts it once."""
    credit = estimate(batch(), settings(name))
    if isinstance(credit, TokenCredit):
        credit = credit.of_steps()
    for values in (credit.advantages, credit.raw, *([credit.returns] if credit.returns else [])):
        assert values[0][0] == values[1][0] == values[2][0]
        assert values[1][1] == values[2][1]
        assert len({values[at][2] for at in range(4)}) == 4
    apart = estimate([replace(item, nodes=()) for item in batch()], settings(name))
    apart = apart.of_steps() if isinstance(apart, TokenCredit) else apart
    if name not in ("gigpo", "layered"):  # states met once, and whitening before the sum
        mean = (apart.raw[0][0] + (apart.raw[1][0] + apart.raw[2][0]) / 2) / 2
        assert credit.raw[0][0] == pytest.approx(mean)
    _check_whitening(name, credit)


def _check_whitening(name: str, credit: Credit) -> None:
    counted = [
        (value, weight)
        for row, lengths, plays in zip(credit.advantages, counted_lengths(batch()), first_plays(batch()), strict=True)
        for value, length, first in zip(row, lengths, plays, strict=True)
        for weight in [length if name.startswith("reinforce_pp") else int(first)]
    ]
    if name in ("step_gae", "reinforce", "reinforce_pp", "reinforce_pp_baseline"):
        values = [value for value, weight in counted for _ in range(weight)]
        assert ops.mean(values) == pytest.approx(0, abs=1e-6)
        assert ops.std(values) == pytest.approx(1, abs=1e-6)


def test_whitening_over_tokens_counts_those_in_common_once() -> None:
    credit = estimate(batch(), settings("token_gae"))
    assert isinstance(credit, TokenCredit)
    once = [
        token
        for item, plays in zip(credit.advantages, first_plays(batch()), strict=True)
        for step, first in zip(item, plays, strict=True)
        for token in step
        if first
    ]
    assert len(once) == 4 + 2 + 1 + 4
    assert ops.mean(once) == pytest.approx(0, abs=1e-6)
    assert ops.std(once) == pytest.approx(1, abs=1e-6)


def test_gigpo_meets_a_state_once_for_a_step_in_common() -> None:
    """Two plays of the first step, one of them in three trajectories: the state's mean is that of two."""
    met = [replace(item, state_keys=("start", *item.state_keys[1:])) for item in batch()]
    credit = estimate(met, replace(settings("gigpo"), divide_by_std=False))
    assert isinstance(credit, Credit)
    episode = ops.mean(RETURNS)
    stranger, tree = 2.0, 2.5
    assert credit.raw[3][0] == pytest.approx(stranger - episode + stranger - (stranger + tree) / 2)


def trajectory(member: int, origin: int | None, shared: int, **others: Any) -> Trajectory:
    steps = tuple(
        Step((1, 2, at), (member, at), (-1.0, -1.0), "", "", 0.0, False, False, "stop", "") for at in range(3)
    )
    record = {"end_reason": "terminated", "origin": origin, "shared_steps": shared}
    return Trajectory(steps, "", "", 0, 0, member, False, final_observation="", **record | others)


def test_each_step_played_is_one_row() -> None:
    items = [trajectory(0, None, 0), trajectory(1, 0, 1), trajectory(2, 1, 2), trajectory(3, None, 0)]
    group = TrajectoryGroup(0, 0, tuple(items))
    steps = step_rows([group], items)
    assert steps.nodes == NODES
    assert steps.places == ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2), (3, 0), (3, 1), (3, 2))
    assert steps.row_of == ((0, 1, 2), (0, 3, 4), (0, 3, 5), (6, 7, 8))
    assert [row.trajectory for row in steps.rows][:6] == [(0, 0)] * 3 + [(0, 1)] * 2 + [(0, 2)]
    rest = step_rows([group], items[1:])  # the trunk is not trained
    assert rest.places == ((0, 0), (0, 1), (0, 2), (1, 2), (2, 0), (2, 1), (2, 2))
    unbranched = step_rows([TrajectoryGroup(0, 0, (items[0], items[3]))], [items[0], items[3]])
    assert unbranched.nodes == ((), ())
