"""What is played for one update: P groups, other groups in place of flat ones, and greedy rollouts to compare with.

Credit is not assigned here. What plays is collective: all ranks call it in the same order, in one thread of each.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any

from agentr1_train import distributed, ops
from agentr1_train.config import Recipe
from agentr1_train.credit_records import is_trained, uneven_groups
from agentr1_train.distributed import Gather
from agentr1_train.errors import RolloutError
from agentr1_train.flow import AgentFlow
from agentr1_train.metrics import rollout_metrics, summarise
from agentr1_train.pools import Pool
from agentr1_train.presets import AlgorithmSettings, groups_of
from agentr1_train.rollout import TRAIN_STREAM, Stop, collect, update_groups
from agentr1_train.sampler.base import Sampler
from agentr1_train.trajectory import Step, Trajectory, TrajectoryGroup


@dataclass(frozen=True, slots=True)
class Collector:
    """Plays the episodes of updates."""

    pool: Pool
    sampler: Sampler
    flow: AgentFlow
    greedy_flow: AgentFlow
    """Plays the greedy rollouts, where the estimator needs them."""
    gather: Gather = distributed.all_gather_object
    """Its collective; another thread than the main one needs its own (``distributed.side_gather``)."""
    stop: Stop | None = None
    """Ends what it plays, where that is another thread's."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What one rank played for an update."""

    groups: list[TrajectoryGroup]
    """In the order of their global indices; flat ones that were replaced among them."""
    greedy: Mapping[int, Trajectory] = field(default_factory=dict)
    """For each group a greedy rollout of its seed that did not fail."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Over all ranks."""
    versions: Mapping[int, int] = field(default_factory=dict)
    """Policy version -> number of steps sampled with it, over all ranks; greedy rollouts aside."""


def collect_update(collector: Collector, recipe: Recipe, settings: AlgorithmSettings, update: int) -> Collected:
    """Play this rank's part of an update. A collective call.

    Raises:
        RolloutError: more trajectories failed than ``rollout.max_error_fraction`` allows, over all ranks.
    """

    def play(first: int, count: int) -> list[TrajectoryGroup]:
        return _play(collector, recipe, update, first, count)

    gather = collector.gather
    groups, played = enough_groups(play, recipe, settings, gather)
    metrics, versions = _metrics(groups, recipe, update, gather)
    if settings.flat_groups == "resample":
        metrics["rollout/resampled_groups"] = float(played - groups_of(recipe.rollout, settings))
    greedy = _play_greedily(collector, recipe, update, played) if settings.needs_greedy else {}
    if settings.needs_greedy:
        returns = chain(*gather([item.total_reward for item in greedy.values()]))
        metrics["rollout/greedy_return"] = ops.mean(list(returns))
    return Collected(groups, greedy, metrics, versions)


def enough_groups(
    play: Callable[[int, int], list[TrajectoryGroup]],
    recipe: Recipe,
    settings: AlgorithmSettings,
    gather: Gather = distributed.all_gather_object,
) -> tuple[list[TrajectoryGroup], int]:
    """Play P groups and, under ``flat_groups = "resample"``, others until P are not flat (DAPO, arXiv 2503.14476).

    Args:
        play: ``play(first, count)`` plays this rank's part of the groups from the global index ``first`` on.
        recipe: P, and what becomes of failed trajectories.
        settings: the algorithm.
        gather: the collective of this thread.

    Returns:
        This rank's groups, flat ones among them, and how many were played over all ranks.
    """
    played = wanted = groups_of(recipe.rollout, settings)
    groups = play(0, wanted)
    for _ in range(settings.resample_rounds if settings.flat_groups == "resample" else 0):
        trained = [item for group in groups for item in group.trajectories if is_trained(item, recipe)]
        missing = wanted - len(uneven_groups(trained, recipe, settings, gather))
        if missing <= 0:
            break
        groups += play(played, missing)
        played += missing
    return groups, played


def _play(collector: Collector, recipe: Recipe, update: int, first: int, count: int) -> list[TrajectoryGroup]:
    rank, world = distributed.rank(), distributed.world_size()
    return collect(
        collector.pool,
        collector.sampler,
        collector.flow,
        update_groups(recipe.seed, update, count, first=first, rank=rank, world=world),
        group_size=recipe.rollout.group_size,
        key=(recipe.seed, TRAIN_STREAM, update),
        concurrency=recipe.rollout.concurrency,
        patience_s=recipe.rollout.patience_s,
        stop=collector.stop,
    )


def _play_greedily(collector: Collector, recipe: Recipe, update: int, count: int) -> dict[int, Trajectory]:
    """Play each of this rank's seeds once more, greedily; what fails is left out."""
    found = collect(
        collector.pool,
        collector.sampler,
        collector.greedy_flow,
        update_groups(recipe.seed, update, count, rank=distributed.rank(), world=distributed.world_size()),
        group_size=1,
        key=(recipe.seed, TRAIN_STREAM, update),
        concurrency=recipe.rollout.concurrency,
        patience_s=recipe.rollout.patience_s,
        stop=collector.stop,
    )
    return {group.index: item for group in found for item in group.trajectories if item.error is None}


def dump_collected(items: Iterable[Collected]) -> str:
    """Return what one rank played as JSON."""
    return json.dumps(list(items), default=lambda record: {it.name: getattr(record, it.name) for it in fields(record)})


def load_collected(text: str) -> list[Collected]:
    """Return what ``dump_collected`` wrote, equal to what it was given."""

    def by_index(table: Mapping[str, Any]) -> dict[int, Any]:
        return {int(index): value for index, value in table.items()}

    return [
        Collected(
            groups=[
                TrajectoryGroup(group["index"], group["seed"], tuple(map(_trajectory, group["trajectories"])))
                for group in table["groups"]
            ],
            greedy={index: _trajectory(item) for index, item in by_index(table["greedy"]).items()},
            metrics=table["metrics"],
            versions=by_index(table["versions"]),
        )
        for table in json.loads(text)
    ]


def _trajectory(table: Mapping[str, Any]) -> Trajectory:
    ids = ("prompt_ids", "response_ids", "response_logprobs")
    steps = tuple(Step(**{**step, **{name: tuple(step[name]) for name in ids}}) for step in table["steps"])
    return Trajectory(**{**table, "steps": steps, "final_prompt_ids": tuple(table["final_prompt_ids"])})


def _metrics(
    groups: list[TrajectoryGroup], recipe: Recipe, update: int, gather: Gather
) -> tuple[dict[str, float], dict[int, int]]:
    """Return the metrics of everything that was played, and its steps of each policy version, over all ranks."""
    played = [item for group in groups for item in group.trajectories]
    summaries = sorted(chain(*gather([summarise(item) for item in played])), key=lambda item: (item.group, item.member))
    reasons = Counter(chain(*gather([item.error for item in played if item.error])))
    metrics = rollout_metrics(summaries)
    failed, allowed = metrics["rollout/errors"] / metrics["rollout/trajectories"], recipe.rollout.max_error_fraction
    if failed > allowed:
        raise RolloutError(
            f"update {update}: {failed:.0%} of the trajectories failed, more than rollout.max_error_fraction = "
            f"{allowed:g} allows. The commonest reason: {reasons.most_common(1)[0][0]}"
        )
    return metrics, dict(sorted(Counter(chain(*(item.versions for item in summaries))).items()))
