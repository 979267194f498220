"""The losses of policy and critic, and the weights that average them.

A loss is a weighted sum over trained tokens, ``sum_n weight_n l_n``. The weights already hold the *global*
denominators (``token_weights``: plain Python, from lengths), so micro-batches and ranks cannot change a loss or a
gradient: sums add up. Steps without a token have no weight and stand in no denominator.

Nothing here knows a model, a device or a rank; advantages come from ``advantages/``, names from ``presets.py``.
Shapes: N is the number of trained tokens of a micro-batch, laid end to end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentr1_train.presets import Aggregation, AlgorithmSettings

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to +- this before ``exp``."""


@dataclass(slots=True)
class LossInputs:
    """The trained tokens of one micro-batch."""

    logp: Tensor
    """Log-probability under the policy in training, with gradient. Shape: (N,)."""
    old_logp: Tensor
    """Under the policy at the start of the update. Shape: (N,)."""
    sampler_logp: Tensor
    """As the sampler reported it. Shape: (N,)."""
    advantage: Tensor
    """The step's advantage, at each of its tokens. Shape: (N,)."""
    weight: Tensor
    """From ``token_weights``; 0 marks a token that is there to keep ranks in step, and counts nowhere. Shape: (N,)."""
    step: Tensor
    """Index of the token's row in the micro-batch, 0 .. n_steps - 1. Shape: (N,), int64."""
    trajectory: Tensor
    """Index of the token's trajectory in the micro-batch, 0 .. n_trajectories - 1. Shape: (N,), int64."""
    n_steps: int
    n_trajectories: int
    ref_logp: Tensor | None = None
    """Under the frozen reference. Shape: (N,)."""
    entropy: Tensor | None = None
    """Entropy of the policy at each token, nats, with gradient where it is rewarded. Shape: (N,)."""


@dataclass(slots=True)
class LossOutput:
    """A loss and what it reports."""

    loss: Tensor
    """Scalar with gradient."""
    sums: dict[str, Tensor]
    """Detached float64 scalars; ``metrics.merge`` adds them over micro-batches and ranks (keys that end in ``_max`` by
    the maximum) and ``metrics.finish`` divides them."""


def token_weights(
    lengths: Sequence[Sequence[int]], aggregation: Aggregation, norm_length: int = 1
) -> tuple[tuple[float, ...], ...]:
    """Return the weight of each token of each step; ``lengths`` are those of the whole optimizer step, over all ranks.

    ``token_mean``: 1 / tokens. ``step_mean``: mean in the step, mean over steps. ``trajectory_mean``: mean in the step,
    over the trajectory's steps, over trajectories. ``token_sum_norm``: 1 / (steps x ``norm_length``) (Dr. GRPO, arXiv
    2503.20783).
    Shape: ragged, lengths[i][t] tokens in step t of trajectory i -> one float a step, 0.0 where there is no token.
    """
    filled = [sum(length > 0 for length in row) for row in lengths]
    steps, trajectories = sum(filled), sum(count > 0 for count in filled)
    tokens = sum(sum(row) for row in lengths)

    def weight(length: int, steps_here: int) -> float:
        if length == 0:
            return 0.0
        if aggregation == "token_mean":
            return 1 / tokens
        if aggregation == "step_mean":
            return 1 / (steps * length)
        if aggregation == "trajectory_mean":
            return 1 / (trajectories * steps_here * length)
        return 1 / (steps * norm_length)

    return tuple(tuple(weight(length, count) for length in row) for row, count in zip(lengths, filled, strict=True))


def value_weights(lengths: Sequence[Sequence[int]]) -> tuple[tuple[float, ...], ...]:
    """Return the weight of each step's value: 1 / steps, 0.0 for a step without a token. Shape: as ``lengths``."""
    steps = sum(length > 0 for row in lengths for length in row)
    return tuple(tuple(1 / steps if length else 0.0 for length in row) for row in lengths)


def kl_terms(logp: Tensor, ref_logp: Tensor, form: str) -> Tensor:
    """Return estimates of KL(policy || reference) from tokens the policy sampled.

    Source: Schulman 2020, "Approximating KL divergence".
    With ``d = logp - ref_logp``: k1 is ``d``, k2 is ``d^2 / 2``, k3 is ``exp(-d) - 1 + d``. Shape: (N,), (N,) -> (N,).
    """
    difference = logp - ref_logp
    if form == "k1":
        return difference
    if form == "k2":
        return difference.square() / 2
    clamped = difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return torch.expm1(-clamped) + clamped


def adapt_kl_coef(coef: float, kl: float, target: float) -> float:
    """Move the KL coefficient towards ``target`` (Ziegler et al. 2019, arXiv 1909.08593, section 2.2).

    ``coef (1 + 0.1 clip(kl / target - 1, -0.2, 0.2))``, once an update.
    """
    return coef * (1 + 0.1 * min(max(kl / target - 1, -0.2), 0.2))


def passes_kl_stop(kl_old: float, settings: AlgorithmSettings) -> bool:
    """Return True when the update's epochs end here: ``policy/kl_old`` is above a ``kl_stop`` that is on."""
    return settings.kl_stop > 0 and kl_old > settings.kl_stop


def policy_loss(inputs: LossInputs, settings: AlgorithmSettings) -> LossOutput:
    """Return the policy's loss: objective, mismatch weight, KL and entropy. Arithmetic is in the dtype of ``logp``."""
    real = inputs.weight != 0
    surrogate, log_ratio, clipped = _surrogate(inputs, settings)
    correction, mismatch_sums = _mismatch(inputs, settings, real)
    loss = (inputs.weight * correction * surrogate).sum()
    sums = {"policy/tokens": real, "policy/loss": loss, "policy/clip_fraction": clipped & real} | mismatch_sums
    ratio = log_ratio.detach().exp()
    sums["policy/ratio_mean"] = torch.where(real, ratio, 0)
    sums["policy/ratio_max"] = torch.where(real, ratio, 0).max() if len(ratio) else ratio.sum()
    sums["policy/kl_old"] = torch.where(real, kl_terms(inputs.old_logp, inputs.logp.detach(), "k3"), 0)

    if inputs.ref_logp is not None:
        sums["policy/kl_ref"] = torch.where(real, kl_terms(inputs.logp.detach(), inputs.ref_logp, "k3"), 0)
        if settings.kl == "loss":
            penalty = (inputs.weight * kl_terms(inputs.logp, inputs.ref_logp, settings.kl_form)).sum()
            sums["policy/kl_loss"] = penalty
            loss = loss + settings.kl_coef * penalty
    if inputs.entropy is not None:
        sums["policy/entropy"] = torch.where(real, inputs.entropy.detach(), 0)
        if settings.entropy_coef:
            loss = loss - settings.entropy_coef * (inputs.weight * inputs.entropy).sum()
    return LossOutput(loss, _detached(sums))


def value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, weight: Tensor, settings: AlgorithmSettings
) -> LossOutput:
    """Return the critic's loss on one value a step, times ``value_coef``.

    ``0.5 max((V - G)^2, (clip(V, V_old - c, V_old + c) - G)^2)``, the clipped value loss of PPO's published code
    (Schulman et al. 2017). ``weight`` is from ``value_weights``. Shape: (B,) each.
    """
    real = weight != 0
    error, clipped = (values - returns).square(), torch.zeros_like(real)
    if settings.value_clip:
        bounded = old_values + (values - old_values).clamp(-settings.value_clip, settings.value_clip)
        bounded_error = (bounded - returns).square()
        clipped = (bounded_error > error) & real
        error = torch.maximum(error, bounded_error)
    loss = (weight * error).sum() / 2
    sums = {
        "critic/steps": real,
        "critic/loss": loss,
        "critic/clip_fraction": clipped,
        "critic/value_mean": torch.where(real, values.detach(), 0),
    }
    return LossOutput(settings.value_coef * loss, _detached(sums))


def _surrogate(inputs: LossInputs, settings: AlgorithmSettings) -> tuple[Tensor, Tensor, Tensor]:
    """Return the objective at each token, its log-ratio, and where the clip decided. Shape: (N,) each."""
    advantage, logp = inputs.advantage, inputs.logp
    log_ratio = _log_ratio(inputs, settings)
    if settings.objective == "reinforce":
        return -advantage * logp, log_ratio, torch.zeros_like(logp, dtype=torch.bool)
    ratio = log_ratio.exp()
    bounded = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    if settings.objective == "cispo":  # arXiv 2506.13585: the weight is clipped, every token keeps its gradient
        return -bounded.detach() * advantage * logp, log_ratio, bounded != ratio
    loss = torch.maximum(-advantage * ratio, -advantage * bounded)
    clipped = -advantage * bounded > -advantage * ratio
    if settings.dual_clip:  # arXiv 1912.09729: bounds the loss of an action that was bad and became likelier
        ceiling = -advantage * settings.dual_clip
        loss = torch.where(advantage < 0, torch.minimum(loss, ceiling), loss)
    return loss, log_ratio, clipped


def _log_ratio(inputs: LossInputs, settings: AlgorithmSettings) -> Tensor:
    """Return log(pi / pi_old) at the level of the settings, at each token. Shape: (N,).

    ``step`` and ``trajectory`` give the mean over the tokens of the step or trajectory to each of them, so that the
    gradient spreads over what was averaged (GSPO, arXiv 2507.18071; StepPO, arXiv 2604.18401). A trajectory must then
    lie whole in the micro-batch.
    """
    log_ratio = (inputs.logp - inputs.old_logp).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if settings.ratio == "token" or settings.objective == "reinforce":
        return log_ratio
    index, size = (
        (inputs.step, inputs.n_steps) if settings.ratio == "step" else (inputs.trajectory, inputs.n_trajectories)
    )
    zeros = log_ratio.new_zeros(size)
    counts = zeros.index_add(0, index, torch.ones_like(log_ratio)).clamp(min=1)
    return (zeros.index_add(0, index, log_ratio) / counts)[index]


def _mismatch(inputs: LossInputs, settings: AlgorithmSettings, real: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the importance weight pi_old / pi_sampler as the settings bound it, and its metrics. Shape: (N,)."""
    log_ratio = (inputs.old_logp - inputs.sampler_logp).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = log_ratio.exp()
    weight, clipped = mismatch_weights(ratio, settings)
    counted = torch.where(real, ratio, 0)
    sums = {
        "mismatch/kl": torch.where(real, torch.expm1(log_ratio) - log_ratio, 0),
        "mismatch/ratio_mean": counted,
        "mismatch/ratio_max": counted.max() if len(counted) else counted.sum(),
        "mismatch/clipped_fraction": clipped & real,
    }
    return weight, sums


def mismatch_weights(ratio: Tensor, settings: AlgorithmSettings) -> tuple[Tensor, Tensor]:
    """Return the bounded importance weight and where it was bounded. Shape: (N,) -> (N,), (N,).

    ``truncate``: ``min(ratio, mismatch_cap)``. ``mask``: the ratio inside [``mismatch_low``, ``mismatch_high``], 0
    outside. ``none``: 1.
    """
    if settings.mismatch == "truncate":
        return ratio.clamp(max=settings.mismatch_cap), ratio > settings.mismatch_cap
    if settings.mismatch == "mask":
        outside = (ratio < settings.mismatch_low) | (ratio > settings.mismatch_high)
        return torch.where(outside, 0, ratio), outside
    return torch.ones_like(ratio), torch.zeros_like(ratio, dtype=torch.bool)


def _detached(sums: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().double().sum() for name, value in sums.items()}
