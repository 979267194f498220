"""The optimizer steps that follow a rollout: weights, losses, epochs and mini-batches.

Weights hold the denominators of the whole optimizer step over all ranks; trajectories are dealt over mini-batches by
their global index, so neither ranks nor micro-batches change a step.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from agentr1_train.advantages import counted_lengths
from agentr1_train.batch import MicroBatch, Row, assert_spans, pack
from agentr1_train.config import Recipe
from agentr1_train.critic_values import critic_loss, critic_rows
from agentr1_train.experience import Experience, Models, moving_rows
from agentr1_train.losses import (
    LossInputs,
    LossOutput,
    passes_kl_stop,
    policy_loss,
    token_weights,
    value_weights,
)
from agentr1_train.metrics import average, finish
from agentr1_train.presets import AlgorithmSettings
from agentr1_train.schedule import learning_rate


def update_models(
    experience: Experience, models: Models, recipe: Recipe, settings: AlgorithmSettings, update: int
) -> dict[str, float]:
    """Take the update's optimizer steps and return their metrics. A collective call.

    Raises:
        SpanMismatchError: the packed tensors do not hold what was sampled.
        NonFiniteLossError: a loss or a gradient is not finite.
    """
    optimizer = recipe.optimizer
    rates = {
        "policy": learning_rate(settings.lr, update, recipe.updates, optimizer),
        "critic": learning_rate(settings.critic_lr, update, recipe.updates, optimizer),
    }
    steps: list[dict[str, float]] = []
    stopped = False
    for _ in range(optimizer.epochs):
        for part in range(optimizer.minibatches):
            rows = None if stopped else minibatch_rows(experience, settings, part, optimizer.minibatches)
            if rows is not None:
                steps.append(_step(rows, experience.has_old_logp, models, recipe, settings, rates))
                stopped = passes_kl_stop(steps[-1]["policy/kl_old"], settings)
    skipped = sum(step.pop("policy/skipped") + step.pop("critic/skipped", 0.0) for step in steps)
    return average(steps) | {
        "policy/optimizer_steps": float(len(steps)),
        "policy/skipped_steps": skipped,
        "policy/kl_stopped": float(stopped),
        "policy/lr": rates["policy"],
        **({"critic/lr": rates["critic"]} if models.critic else {}),
    }


def minibatch_rows(experience: Experience, settings: AlgorithmSettings, part: int, parts: int) -> list[Row] | None:
    """Return this rank's rows of a mini-batch with their weights; ``None``, on every rank, when it trains nothing."""
    chosen = [
        at for at, item in enumerate(experience.records) if at % parts == part and item.group not in experience.left_out
    ]
    counted = counted_lengths(experience.records)
    lengths = [counted[at] for at in chosen]
    if not any(length for row in lengths for length in row):
        return None
    weights = dict(zip(chosen, token_weights(lengths, settings.aggregation, settings.norm_length), strict=True))
    values = token_weights(lengths, "token_mean") if settings.by_token else value_weights(lengths)
    critic_weights = dict(zip(chosen, values, strict=True))
    return [
        replace(row, weight=weights[at][step], value_weight=critic_weights[at][step])
        for row, (at, step) in zip(experience.rows, experience.places, strict=True)
        if at in weights
    ]


def _step(
    rows: Sequence[Row],
    has_old_logp: bool,
    models: Models,
    recipe: Recipe,
    settings: AlgorithmSettings,
    rates: dict[str, float],
) -> dict[str, float]:
    """Take one optimizer step of policy and critic and return its metrics."""
    budget, packing = recipe.engine.micro_batch_tokens, recipe.engine.packing
    trained = rows_with_gradient(rows, settings)
    packed = pack(trained, budget, keep_trajectories_together=settings.ratio == "trajectory", packing=packing)
    assert_spans(packed, trained)

    def loss_of_policy(output: tuple[Tensor, Tensor], batch: MicroBatch) -> LossOutput:
        return policy_loss(loss_inputs(output, batch, has_old_logp), settings)

    sums = models.policy.forward_backward(packed, loss_of_policy)
    taken = _named("policy", models.policy.optim_step(rates["policy"]))
    if models.critic is not None:

        def loss_of_critic(values: Tensor, batch: MicroBatch) -> LossOutput:
            return critic_loss(values, batch, settings)

        packed = pack(critic_rows(rows, settings), budget, packing=packing)
        sums |= models.critic.forward_backward(packed, loss_of_critic)
        taken |= _named("critic", models.critic.optim_step(rates["critic"]))
    return finish(sums) | taken


def rows_with_gradient(rows: Sequence[Row], settings: AlgorithmSettings) -> list[Row]:
    """Leave out the rows that cannot move the policy.

    Weights keep the denominators of all rows, so loss and gradient are those of the whole mini-batch. Where nothing
    moves, one row of weight 0 remains, so that there is a loss to report.
    """
    return [rows[at] for at in moving_rows(rows, settings)] or [replace(row, weight=0.0) for row in rows[:1]]


def loss_inputs(output: tuple[Tensor, Tensor], batch: MicroBatch, has_old_logp: bool) -> LossInputs:
    """Return what ``policy_loss`` reads. Before the first optimizer step the policy is its own old policy."""
    logp, entropy = output
    return LossInputs(
        logp=logp,
        old_logp=batch.old_logp if has_old_logp else logp.detach(),
        sampler_logp=batch.sampler_logp,
        advantage=batch.advantage,
        weight=batch.weight,
        step=batch.step,
        trajectory=batch.trajectory,
        n_steps=batch.n_steps,
        n_trajectories=batch.n_trajectories,
        ref_logp=batch.ref_logp,
        entropy=entropy,
    )


def _named(model: str, figures: dict[str, Any]) -> dict[str, float]:
    return {f"{model}/{name}": float(value) for name, value in figures.items()}
