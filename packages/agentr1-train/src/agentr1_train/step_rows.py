"""Which rows a rollout makes: one for each step played, however many trajectories have it in common.

An episode that branched gives several trajectories that repeat the steps before the branching point. Each such step is
computed and trained once, with the first trajectory that is trained; all of them keep it in their credit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agentr1_train.batch import Row
from agentr1_train.trajectory import Trajectory, TrajectoryGroup

Node = tuple[int, int]
"""Where a step was played first: (member, step)."""


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of trajectories, and where each step's row is."""

    trajectories: tuple[Trajectory, ...]
    rows: list[Row]
    row_of: tuple[tuple[int, ...], ...]
    """For each trajectory, for each step, the index of its row."""
    nodes: tuple[tuple[Node, ...], ...]
    """For each trajectory, for each step, where it was played first; empty where no episode branched."""
    places: tuple[tuple[int, int], ...]
    """For each row (index in ``trajectories``, step)."""


def step_rows(groups: Sequence[TrajectoryGroup], trained: Sequence[Trajectory]) -> StepRows:
    """Return the rows of ``trained``, trajectories of ``groups``, in order.

    The groups are there whole: a trajectory may have branched off one that is not trained.
    """
    origins = {(item.group, item.member): item for group in groups for item in group.trajectories}
    branched = {item.group for item in origins.values() if item.origin is not None}
    rows: list[Row] = []
    places: list[tuple[int, int]] = []
    known: dict[tuple[int, Node], int] = {}
    row_of: list[tuple[int, ...]] = []
    nodes: list[tuple[Node, ...]] = []
    for at, item in enumerate(trained):
        path = tuple(_first_played(item, step, origins) for step in range(len(item.steps)))
        for step, node in enumerate(path):
            if (item.group, node) not in known:
                known[item.group, node] = len(rows)
                rows.append(_row(item, step))
                places.append((at, step))
        row_of.append(tuple(known[item.group, node] for node in path))
        nodes.append(path if item.group in branched else ())
    return StepRows(tuple(trained), rows, tuple(row_of), tuple(nodes), tuple(places))


def _first_played(item: Trajectory, step: int, origins: dict[tuple[int, int], Trajectory]) -> Node:
    while item.origin is not None and step < item.shared_steps:
        item = origins[item.group, item.origin]
    return item.member, step


def _row(item: Trajectory, step: int) -> Row:
    taken = item.steps[step]
    key = (item.group, item.member)
    return Row(taken.prompt_ids, taken.response_ids, key, sampler_logp=taken.response_logprobs)
