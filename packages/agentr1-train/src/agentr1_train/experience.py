"""A rollout becomes experience: log-probabilities, values and credit for every step.

Every rank evaluates its own rows; compact records without tokens are then gathered, so that all ranks hold the same
credit over the whole batch. Nothing is updated here (``update.py``).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from agentr1_train import distributed, ops
from agentr1_train.advantages import Credit, CreditTrajectory, estimate, flat_groups, permute_rewards, subtract_kl
from agentr1_train.batch import Row, pack, split_rows, split_tokens
from agentr1_train.config import Recipe
from agentr1_train.engine.deepspeed import DeepSpeedEngine, FrozenModel
from agentr1_train.metrics import credit_metrics
from agentr1_train.presets import AlgorithmSettings
from agentr1_train.trajectory import Step, Trajectory, TrajectoryGroup


@dataclass(frozen=True, slots=True)
class Models:
    """What a run trains and evaluates."""

    policy: DeepSpeedEngine
    critic: DeepSpeedEngine | None
    """Present when the estimator needs values."""
    reference: FrozenModel | None
    """Present when KL to the start of the run is used."""


@dataclass(frozen=True, slots=True)
class Experience:
    """The batch of one update, as one rank holds it."""

    records: tuple[CreditTrajectory, ...]
    """All trajectories of all ranks, ordered by (group, member)."""
    credit: Credit
    """One float for each step of ``records``."""
    rows: tuple[Row, ...]
    """This rank's steps, with advantages, values and log-probabilities; weights are set for each optimizer step."""
    places: tuple[tuple[int, int], ...]
    """For each row its (index in ``records``, step)."""
    left_out: frozenset[int]
    """Groups that carry no signal and were dropped."""
    has_old_logp: bool
    """False when one optimizer step follows: the policy is then its own old policy."""
    metrics: dict[str, float]


def build_experience(
    groups: Sequence[TrajectoryGroup], models: Models, recipe: Recipe, settings: AlgorithmSettings, seed: int
) -> Experience:
    """Evaluate this rank's trajectories, gather everybody's records and assign credit. A collective call.

    Args:
        groups: this rank's groups.
        models: policy, critic and reference.
        recipe: token budget, passes, and what becomes of failed trajectories.
        settings: the algorithm; its ``kl_coef`` is the current one.
        seed: of the permutation control.
    """
    trajectories = [item for group in groups for item in group.trajectories if is_trained(item, recipe)]
    rows = [_row(step.prompt_ids, item, step) for item in trajectories for step in item.steps]
    several_steps = recipe.optimizer.epochs * recipe.optimizer.minibatches > 1
    has_old_logp = several_steps or settings.kl == "reward"
    if settings.kl == "reward":
        rows = [replace(row, old_logp=span) for row, span in _logp(models.policy, rows, recipe)]
    if models.reference is not None:
        rows = [replace(row, ref_logp=span) for row, span in _logp(models.reference, rows, recipe)]
    values, finals = _values(trajectories, rows, models, recipe, settings)
    rows = [replace(row, old_value=value) for row, value in zip(rows, values, strict=True)]

    records, charges = _gather(_records(trajectories, rows, finals, settings), rows, settings)
    left_out = flat_groups(records) if settings.flat_groups == "drop" else frozenset()
    if settings.permute_returns != "none":
        records = permute_rewards(records, settings.permute_returns, seed)
    if settings.kl == "reward":
        records = [
            replace(item, rewards=subtract_kl(item.rewards, charge, settings.kl_coef))
            for item, charge in zip(records, charges, strict=True)
        ]
    credit = estimate(records, settings)
    places = _places(trajectories, records)
    rows = [_credited(row, place, credit) for row, place in zip(rows, places, strict=True)]
    if several_steps and settings.kl != "reward":  # only now is it known which rows need it
        moving = moving_rows(rows, settings)
        spans = _logp(models.policy, [rows[at] for at in moving], recipe)
        for at, (row, span) in zip(moving, spans, strict=True):
            rows[at] = replace(row, old_logp=span)
    return Experience(
        records=tuple(records),
        credit=credit,
        rows=tuple(rows),
        places=tuple(places),
        left_out=left_out,
        has_old_logp=has_old_logp,
        metrics=_metrics(records, credit, charges, left_out),
    )


def is_trained(trajectory: Trajectory, recipe: Recipe) -> bool:
    """Return False for a trajectory without a step, and for a failed one unless ``rollout.on_error = "truncate"``."""
    return bool(trajectory.steps) and (trajectory.error is None or recipe.rollout.on_error == "truncate")


def _row(prompt_ids: tuple[int, ...], trajectory: Trajectory, step: Step | None = None) -> Row:
    key = (trajectory.group, trajectory.member)
    if step is None:
        return Row(prompt_ids=prompt_ids, response_ids=(), trajectory=key)
    return Row(prompt_ids, step.response_ids, key, sampler_logp=step.response_logprobs)


def _logp(
    model: DeepSpeedEngine | FrozenModel, rows: Sequence[Row], recipe: Recipe
) -> list[tuple[Row, tuple[float, ...]]]:
    """Return each row with the log-probabilities that the model gives its response. A collective call."""
    packed = pack(rows, recipe.engine.micro_batch_tokens, packing=recipe.engine.packing)
    spans = split_tokens(packed, [logp for logp, _ in model.evaluate(packed)], len(rows))
    return list(zip(rows, spans, strict=True))


def moving_rows(rows: Sequence[Row], settings: AlgorithmSettings) -> list[int]:
    """Return the indices of the rows that can move the policy.

    The others have advantage 0, and neither KL nor entropy stands in the loss. A trajectory whose ratio is averaged
    over its steps stays whole.
    """
    if settings.kl == "loss" or settings.entropy_coef:
        return list(range(len(rows)))
    if settings.ratio == "trajectory":
        moving = {row.trajectory for row in rows if row.advantage}
        return [at for at, row in enumerate(rows) if row.trajectory in moving]
    return [at for at, row in enumerate(rows) if row.advantage]


def _values(
    trajectories: Sequence[Trajectory],
    rows: Sequence[Row],
    models: Models,
    recipe: Recipe,
    settings: AlgorithmSettings,
) -> tuple[list[float], dict[tuple[int, int], float]]:
    """Return the critic's value of each row, and of what would have followed each truncated trajectory."""
    if models.critic is None:
        return [0.0] * len(rows), {}
    cut = [item for item in trajectories if settings.bootstrap_truncated and item.truncated and item.final_prompt_ids]
    prompts = [prompt_only(row) for row in rows] + [_row(item.final_prompt_ids, item) for item in cut]
    packed = pack(prompts, recipe.engine.micro_batch_tokens, packing=recipe.engine.packing)
    values = split_rows(packed, models.critic.evaluate(packed), len(prompts))
    finals = {(item.group, item.member): value for item, value in zip(cut, values[len(rows) :], strict=True)}
    return values[: len(rows)], finals


def prompt_only(row: Row) -> Row:
    """Return the row as the critic needs it: it reads the end of the prompt and never the response."""
    return replace(row, response_ids=(), sampler_logp=(), old_logp=(), ref_logp=None)


def _records(
    trajectories: Sequence[Trajectory],
    rows: Sequence[Row],
    finals: dict[tuple[int, int], float],
    settings: AlgorithmSettings,
) -> list[CreditTrajectory]:
    remaining = iter(rows)
    records = []
    for item in trajectories:
        values = tuple(next(remaining).old_value for _ in item.steps)
        records.append(
            CreditTrajectory(
                group=item.group,
                member=item.member,
                rewards=item.rewards,
                lengths=tuple(len(step.response_ids) for step in item.steps),
                values=values if settings.needs_critic else None,
                final_value=finals.get((item.group, item.member), 0.0),
                truncated=item.truncated,
                state_keys=tuple(step.state_key for step in item.steps),
            )
        )
    return records


def _gather(
    local: Sequence[CreditTrajectory], rows: Sequence[Row], settings: AlgorithmSettings
) -> tuple[list[CreditTrajectory], list[tuple[float, ...]]]:
    """Return the records of all ranks ordered by (group, member), and beside each the KL of its steps."""
    remaining = iter(rows)
    charged = settings.kl == "reward"
    kl = [tuple(_k1(row) if charged else 0.0 for row in islice(remaining, len(item.rewards))) for item in local]
    pairs = [pair for part in distributed.all_gather_object(list(zip(local, kl, strict=True))) for pair in part]
    pairs.sort(key=lambda pair: (pair[0].group, pair[0].member))
    return [record for record, _ in pairs], [charge for _, charge in pairs]


def _metrics(
    records: Sequence[CreditTrajectory],
    credit: Credit,
    charges: Sequence[Sequence[float]],
    left_out: frozenset[int],
) -> dict[str, float]:
    metrics = credit_metrics(records, credit) | {"credit/dropped_groups": float(len(left_out))}
    paid = [charge for row in charges for charge in row]
    return metrics | {"policy/kl_reward": ops.mean(paid)} if any(paid) else metrics


def _k1(row: Row) -> float:
    """Return the sum over the step's tokens of log pi_old - log pi_ref."""
    return math.fsum(old - ref for old, ref in zip(row.old_logp, row.ref_logp or (), strict=True))


def _places(trajectories: Sequence[Trajectory], records: Sequence[CreditTrajectory]) -> list[tuple[int, int]]:
    index = {(item.group, item.member): at for at, item in enumerate(records)}
    return [(index[item.group, item.member], step) for item in trajectories for step in range(len(item.steps))]


def _credited(row: Row, place: tuple[int, int], credit: Credit) -> Row:
    trajectory, step = place
    returned = credit.returns[trajectory][step] if credit.returns is not None else 0.0
    return replace(row, advantage=credit.advantages[trajectory][step], return_=returned)
