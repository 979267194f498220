"""What credit assignment reads of a rollout: rewards as they count, values, reward streams, the greedy baseline.

And which groups it never sees. It evaluates no model: rows come with their log-probabilities and values.
"""

from collections.abc import Mapping, Sequence

from agentr1_train import distributed
from agentr1_train.advantages import CreditTrajectory, flat_groups, overlong_penalty
from agentr1_train.advantages.layered import COHERENCE, coherence
from agentr1_train.advantages.registry import get_estimator
from agentr1_train.config import Recipe
from agentr1_train.distributed import Gather
from agentr1_train.presets import AlgorithmSettings, groups_of
from agentr1_train.step_rows import StepRows
from agentr1_train.trajectory import Trajectory


def paid(trajectory: Trajectory, recipe: Recipe, settings: AlgorithmSettings) -> tuple[float, ...]:
    """Return the rewards as credit counts them: the environment's, less what overlong responses are charged."""
    if not settings.overlong_share:
        return trajectory.rewards
    longest = recipe.rollout.max_response_tokens
    return tuple(
        step.reward + overlong_penalty(len(step.response_ids), longest, settings.overlong_share)
        for step in trajectory.steps
    )


def is_trained(trajectory: Trajectory, recipe: Recipe) -> bool:
    """Return False for a trajectory without a step of its own, and for a failed one unless it is truncated.

    ``rollout.on_error = "truncate"`` trains failed ones as truncated.
    """
    played = len(trajectory.steps) > trajectory.shared_steps
    return played and (trajectory.error is None or recipe.rollout.on_error == "truncate")


def uneven_groups(
    trajectories: Sequence[Trajectory],
    recipe: Recipe,
    settings: AlgorithmSettings,
    gather: Gather = distributed.all_gather_object,
) -> list[int]:
    """Return the groups, over all ranks and in order, whose returns are not all equal. A collective call.

    A group of one is uneven: it is compared with nothing.
    """
    local = [(item.group, item.member, paid(item, recipe, settings)) for item in trajectories]
    found = [
        CreditTrajectory(group, member, rewards, (0,) * len(rewards))
        for part in gather(local)
        for group, member, rewards in part
    ]
    return sorted({item.group for item in found} - flat_groups(found))


def groups_left_out(
    trajectories: Sequence[Trajectory],
    recipe: Recipe,
    settings: AlgorithmSettings,
    greedy: Mapping[int, Trajectory],
) -> frozenset[int]:
    """Return the groups that are not trained, over all ranks. A collective call.

    Flat ones under ``flat_groups = "drop"`` and ``"resample"``; under the latter also those beyond the P that are
    needed; and, where the estimator needs one, those whose greedy rollout failed.
    """
    if settings.flat_groups == "keep" and not settings.needs_greedy:
        return frozenset()
    known = sorted(set().union(*distributed.all_gather_object({item.group for item in trajectories})))
    kept = known if settings.flat_groups == "keep" else uneven_groups(trajectories, recipe, settings)
    if settings.needs_greedy:
        compared = set().union(*distributed.all_gather_object(set(greedy)))
        kept = [group for group in kept if group in compared]
    if settings.flat_groups == "resample":
        kept = kept[: groups_of(recipe.rollout, settings)]
    return frozenset(known) - frozenset(kept)


def credit_records(
    steps: StepRows,
    finals: Mapping[tuple[int, int], float],
    recipe: Recipe,
    settings: AlgorithmSettings,
    greedy: Mapping[int, Trajectory],
) -> list[CreditTrajectory]:
    """Return one record for each trajectory of ``steps``, in order.

    Args:
        steps: the rows of this rank, with values and reference where the algorithm needs them.
        finals: the critic at the prompt that would have followed, for the truncated.
        recipe: limits of the rollout.
        settings: the algorithm.
        greedy: for each group a greedy rollout of its seed.
    """
    records = []
    for item, row_of, nodes in zip(steps.trajectories, steps.row_of, steps.nodes, strict=True):
        rows = [steps.rows[at] for at in row_of]
        baseline = greedy.get(item.group)
        records.append(
            CreditTrajectory(
                group=item.group,
                member=item.member,
                rewards=paid(item, recipe, settings),
                lengths=tuple(len(row.response_ids) for row in rows),
                values=tuple(row.old_value for row in rows) if settings.needs_critic else None,
                final_value=finals.get((item.group, item.member), 0.0),
                truncated=item.truncated,
                state_keys=tuple(step.state_key for step in item.steps),
                parts=_parts(item, [row.ref_logp for row in rows], settings),
                token_values=tuple(row.token_values for row in rows) if settings.by_token else None,
                greedy_return=sum(paid(baseline, recipe, settings)) if baseline is not None else None,
                nodes=nodes,
            )
        )
    return records


def _parts(
    item: Trajectory, references: Sequence[tuple[float, ...] | None], settings: AlgorithmSettings
) -> dict[str, tuple[float, ...]]:
    """Return the streams that credit weighs. A step that failed in the environment has none of its own: 0."""
    if not get_estimator(settings.estimator).reads_parts:
        return {}
    streams: dict[str, tuple[float, ...]] = {}
    answered = item.steps[:-1] if item.error is not None else item.steps
    for name, weight in settings.layer_weights.items():
        if weight == 0 or name == COHERENCE:
            continue
        if all(name in step.reward_parts for step in answered):
            streams[name] = tuple(step.reward_parts.get(name, 0.0) for step in item.steps)
    if settings.layer_weights.get(COHERENCE):
        streams[COHERENCE] = tuple(coherence(span or ()) for span in references)
    return streams
