"""A rollout becomes experience: log-probabilities, values and credit for every step.

Every rank evaluates its own rows; compact records without tokens are then gathered, so that all ranks hold the same
credit over the whole batch. Nothing is updated here (``update.py``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agentr1_train import distributed, ops
from agentr1_train.advantages import (
    Credit,
    CreditTrajectory,
    TokenCredit,
    estimate,
    overlong_penalty,
    permute_rewards,
    subtract_kl,
)
from agentr1_train.batch import Row, pack, split_tokens
from agentr1_train.config import Recipe
from agentr1_train.credit_records import credit_records, groups_left_out, is_trained
from agentr1_train.critic_values import Values, critic_values
from agentr1_train.engine.deepspeed import AdapterFree, DeepSpeedEngine, FrozenModel
from agentr1_train.metrics import credit_metrics
from agentr1_train.presets import AlgorithmSettings
from agentr1_train.step_rows import StepRows, step_rows
from agentr1_train.trajectory import Trajectory, TrajectoryGroup


@dataclass(frozen=True, slots=True)
class Models:
    """What a run trains and evaluates."""

    policy: DeepSpeedEngine
    critic: DeepSpeedEngine | None
    """Present when the estimator needs values."""
    reference: AdapterFree | FrozenModel | None
    """Present when KL to the start of the run, or coherence, is used."""

    def close(self) -> None:
        """Give their memory back; none of them works after it."""
        if isinstance(self.reference, FrozenModel):
            self.reference.close()
        for engine in (self.critic, self.policy):
            if engine is not None:
                engine.close()


@dataclass(frozen=True, slots=True)
class Experience:
    """The batch of one update, as one rank holds it."""

    records: tuple[CreditTrajectory, ...]
    """The trained trajectories of all ranks, ordered by (group, member)."""
    credit: Credit
    """One float for each step of ``records``; the mean over its tokens where the estimator tells them apart."""
    rows: tuple[Row, ...]
    """This rank's steps, with advantages, values and log-probabilities; weights are set for each optimizer step."""
    places: tuple[tuple[int, int], ...]
    """For each row its (index in ``records``, step)."""
    left_out: frozenset[int]
    """Groups that carry no signal, or were played in vain, and were dropped."""
    has_old_logp: bool
    """False when one optimizer step follows: the policy is then its own old policy."""
    metrics: dict[str, float]


def build_experience(
    groups: Sequence[TrajectoryGroup],
    models: Models,
    recipe: Recipe,
    settings: AlgorithmSettings,
    seed: int,
    greedy: Mapping[int, Trajectory] | None = None,
) -> Experience:
    """Evaluate this rank's trajectories, gather everybody's records and assign credit. A collective call.

    Args:
        groups: this rank's groups.
        models: policy, critic and reference.
        recipe: token budget, passes, and what becomes of failed trajectories.
        settings: the algorithm; its ``kl_coef`` is the current one.
        seed: of the permutation control.
        greedy: for each group a greedy rollout of its seed, where the estimator needs one.
    """
    trajectories = [item for group in groups for item in group.trajectories if is_trained(item, recipe)]
    left_out = groups_left_out(trajectories, recipe, settings, greedy or {})
    steps = step_rows(groups, [item for item in trajectories if item.group not in left_out])
    several_steps = recipe.optimizer.epochs * recipe.optimizer.minibatches > 1
    rows, finals = _evaluated(steps, models, recipe, settings)
    steps = replace(steps, rows=rows)

    records, charges, metrics = _gather(
        credit_records(steps, finals, recipe, settings, greedy or {}), steps, recipe, settings
    )
    if settings.permute_returns != "none":
        records = permute_rewards(records, settings.permute_returns, seed)
    if settings.kl == "reward":
        records = [
            replace(item, rewards=subtract_kl(item.rewards, charge, settings.kl_coef))
            for item, charge in zip(records, charges, strict=True)
        ]
    credit = estimate(records, settings)
    places = _places(steps, records)
    rows = [_credited(row, place, credit) for row, place in zip(rows, places, strict=True)]
    if several_steps and settings.kl != "reward":  # only now is it known which rows need it
        moving = moving_rows(rows, settings)
        spans = _logp(models.policy, [rows[at] for at in moving], recipe)
        for at, (row, span) in zip(moving, spans, strict=True):
            rows[at] = replace(row, old_logp=span)
    return Experience(
        records=tuple(records),
        credit=credit.of_steps() if isinstance(credit, TokenCredit) else credit,
        rows=tuple(rows),
        places=tuple(places),
        left_out=left_out,
        has_old_logp=several_steps or settings.kl == "reward",
        metrics=credit_metrics(records, credit) | metrics | {"credit/dropped_groups": float(len(left_out))},
    )


def _evaluated(
    steps: StepRows, models: Models, recipe: Recipe, settings: AlgorithmSettings
) -> tuple[list[Row], dict[tuple[int, int], float]]:
    """Return the rows under policy, reference and critic, and the values behind truncated trajectories."""
    rows = steps.rows
    if settings.kl == "reward":
        rows = [replace(row, old_logp=span) for row, span in _logp(models.policy, rows, recipe)]
    if models.reference is not None:
        rows = [replace(row, ref_logp=span) for row, span in _logp(models.reference, rows, recipe)]
    if models.critic is None:
        return rows, {}
    bootstraps = [item for item in steps.trajectories if item.truncated and item.final_prompt_ids]
    cut = bootstraps if settings.bootstrap_truncated else []
    after = [Row(item.final_prompt_ids, (), (item.group, item.member)) for item in cut]
    values = critic_values(models.critic, [*rows, *after], recipe.engine, settings)
    finals = {(item.group, item.member): value for item, value in zip(cut, values.steps[len(rows) :], strict=True)}
    return [_valued(row, at, values) for at, row in enumerate(rows)], finals


def _valued(row: Row, at: int, values: Values) -> Row:
    return replace(row, old_value=values.steps[at], token_values=values.tokens[at])


def _logp(
    model: AdapterFree | DeepSpeedEngine | FrozenModel, rows: Sequence[Row], recipe: Recipe
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
    moving = [at for at, row in enumerate(rows) if row.advantage or any(row.token_advantages)]
    if settings.ratio == "trajectory":
        whole = {rows[at].trajectory for at in moving}
        return [at for at, row in enumerate(rows) if row.trajectory in whole]
    return moving


def _gather(
    local: Sequence[CreditTrajectory], steps: StepRows, recipe: Recipe, settings: AlgorithmSettings
) -> tuple[list[CreditTrajectory], list[tuple[float, ...]], dict[str, float]]:
    """Return the records of all ranks ordered by (group, member), beside each the KL of its steps, and the metrics."""
    k1 = [_k1(row) if settings.kl == "reward" else 0.0 for row in steps.rows]
    longest, share = recipe.rollout.max_response_tokens, settings.overlong_share
    overlong = [overlong_penalty(len(row.response_ids), longest, share) if share else 0.0 for row in steps.rows]
    kl = [tuple(k1[at] for at in row_of) for row_of in steps.row_of]
    gathered = distributed.all_gather_object((list(zip(local, kl, strict=True)), k1, overlong))
    pairs = sorted((pair for part, _, _ in gathered for pair in part), key=lambda pair: (pair[0].group, pair[0].member))
    charges = {"policy/kl_reward": [x for _, part, _ in gathered for x in part]}
    charges |= {"credit/overlong": [x for _, _, part in gathered for x in part]}
    metrics = {name: ops.mean(values) for name, values in charges.items() if any(values)}
    return [record for record, _ in pairs], [charge for _, charge in pairs], metrics


def _k1(row: Row) -> float:
    """Return the sum over the step's tokens of log pi_old - log pi_ref."""
    return math.fsum(old - ref for old, ref in zip(row.old_logp, row.ref_logp or (), strict=True))


def _places(steps: StepRows, records: Sequence[CreditTrajectory]) -> list[tuple[int, int]]:
    index = {(item.group, item.member): at for at, item in enumerate(records)}
    owners = [index[item.group, item.member] for item in steps.trajectories]
    return [(owners[at], step) for at, step in steps.places]


def _credited(row: Row, place: tuple[int, int], credit: Credit | TokenCredit) -> Row:
    trajectory, step = place
    if isinstance(credit, TokenCredit):
        tokens, targets = credit.advantages[trajectory][step], credit.returns[trajectory][step]
        return replace(row, token_advantages=tokens, token_returns=targets)
    returned = credit.returns[trajectory][step] if credit.returns is not None else 0.0
    return replace(row, advantage=credit.advantages[trajectory][step], return_=returned)
