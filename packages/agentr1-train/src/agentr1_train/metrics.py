"""Every logged number: its name, what it means, and how parts of it become one.

Names have a section and a noun, ``policy/kl_old``. Three sources:

* losses report *sums* and the counts they are divided by (``LossOutput.sums``): ``merge`` adds them over micro-batches
  and ranks, ``finish`` divides, ``average`` joins the optimizer steps of an update;
* rollouts are reduced to ``TrajectorySummary`` records, small enough to gather from all ranks: ``rollout_metrics``;
* credit is already the same on every rank: ``credit_metrics``.

``METRICS`` is the glossary, and the only list of names; writing them down is ``tracking.py``.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from agentr1_train import ops
from agentr1_train.advantages.base import flat_groups
from agentr1_train.advantages.branches import first_plays
from agentr1_train.advantages.records import Credit, CreditTrajectory, TokenCredit
from agentr1_train.trajectory import EndReason, FinishReason, Trajectory

METRICS: dict[str, str] = {
    "rollout/trajectories": "trajectories collected, failed ones included",
    "rollout/groups": "groups (seeds) collected",
    "rollout/flat_groups": "groups of two or more whose returns are all equal, failed trajectories aside",
    "rollout/success": "fraction of trajectories with info['success']; a failed one counts as no success",
    "rollout/return_mean": "mean undiscounted return, as the environment gave it",
    "rollout/return_std": "unbiased standard deviation of the return",
    "rollout/return_min": "smallest return",
    "rollout/return_max": "largest return",
    "rollout/steps_mean": "mean number of steps of a trajectory",
    "rollout/steps_max": "most steps of a trajectory",
    "rollout/branches": "trajectories that branched off another; figures of tokens count the steps in common once",
    "rollout/resampled_groups": "groups played in place of flat ones (flat_groups = 'resample')",
    "rollout/greedy_return": "mean return of the greedy rollouts (remax), which are not trained on",
    "rollout/tokens": "sampled tokens of all trajectories",
    "rollout/response_tokens_mean": "mean sampled tokens of a step",
    "rollout/response_tokens_max": "most sampled tokens of a step",
    "rollout/prompt_tokens_mean": "mean prompt tokens of a step",
    "rollout/prompt_tokens_max": "most prompt tokens of a step",
    "rollout/empty_responses": "steps without a sampled token",
    "rollout/truncated_fraction": "fraction of trajectories that were cut: not terminated, not failed",
    "rollout/errors": "trajectories that failed in the environment or a tool",
    "rollout/staleness_mean": "policy versions between a step's weights and those that its update starts from: mean",
    "rollout/staleness_max": "the most of them; rollout.async_level bounds it",
    "end/<reason>": "trajectories that ended so; the reasons are those of ``trajectory.EndReason``",
    "finish/<reason>": "steps whose response ended so; the reasons are those of ``trajectory.FinishReason``",
    "reward/<part>": "mean over trajectories of the sum over steps of info['reward/<part>']",
    "info/<name>": "mean of a number in the last info, over the trajectories that have it",
    "credit/advantage_mean": "mean over steps of the advantage that the loss uses",
    "credit/advantage_std": "its unbiased standard deviation",
    "credit/advantage_abs_max": "its largest magnitude",
    "credit/raw_std": "standard deviation over steps of the advantage before whitening",
    "credit/dropped_groups": "groups left out: flat ones, those beyond what was needed, those without a greedy rollout",
    "credit/overlong": "mean over steps of what a response was charged for its length (dapo); absent where nothing is",
    "critic/explained_variance": "1 - var(target - V) / var(target) over values, before the update; absent if var is 0",
    "critic/steps": "values in the critic's loss: one a step, or one a token (token_gae, bilevel_gae)",
    "critic/loss": "loss of the critic, before value_coef",
    "critic/clip_fraction": "fraction of values where the value clip decided",
    "critic/value_mean": "mean value during the update",
    "critic/grad_norm": "norm of the critic's gradient before clipping",
    "critic/lr": "learning rate of the critic",
    "policy/tokens": "tokens of an optimizer step that can carry a gradient; the means below are over them",
    "policy/loss": "the objective, without KL and entropy",
    "policy/clip_fraction": "fraction of tokens where the clip decided (cispo: where the weight was clipped)",
    "policy/ratio_mean": "mean of pi / pi_old over tokens, at the ratio level of the objective",
    "policy/ratio_max": "largest pi / pi_old",
    "policy/kl_old": "mean k3 estimate of KL(pi_old || pi); kl_stop reads it",
    "policy/kl_ref": "mean k3 estimate of KL(pi || reference)",
    "policy/kl_loss": "weighted KL term of the loss, before kl_coef",
    "policy/kl_coef": "KL coefficient of this update",
    "policy/kl_reward": "mean over steps of the KL (k1, summed over tokens) charged to the reward, before kl_coef",
    "policy/entropy": "mean entropy over tokens, nats",
    "policy/grad_norm": "norm of the policy's gradient before clipping",
    "policy/lr": "learning rate of the policy",
    "policy/optimizer_steps": "optimizer steps taken in this update",
    "policy/skipped_steps": "optimizer steps skipped for an overflow in half precision",
    "policy/kl_stopped": "1 if kl_stop ended the epochs of this update early, else 0",
    "policy/version": "number of weight syncs so far",
    "mismatch/kl": "mean k3 estimate of KL(sampler || trainer): how far the sampler's log-probabilities are off",
    "mismatch/ratio_mean": "mean of pi_old / pi_sampler over tokens",
    "mismatch/ratio_max": "largest pi_old / pi_sampler",
    "mismatch/clipped_fraction": "fraction of tokens whose importance weight was truncated or masked",
    "supervised/loss": "mean negative log-probability of a demonstrated token, nats",
    "supervised/tokens": "demonstrated tokens of the batch",
    "supervised/failed": "demonstrations that failed or ended without success, and were left out",
    "supervised/grad_norm": "norm of the gradient before clipping",
    "supervised/lr": "learning rate",
    "eval/<name>": "of an evaluation: success, return, steps, pass@k, reward/<part>, and the environment's numbers",
    "time/<name>": "seconds, or per second: the only names that differ between a run and its exact resumption",
}
"""Name -> meaning. ``<...>`` stands for any name."""

_MEAN_OVER: dict[str, str] = {
    **dict.fromkeys(
        (
            "policy/clip_fraction",
            "policy/ratio_mean",
            "policy/kl_old",
            "policy/kl_ref",
            "policy/entropy",
            "mismatch/kl",
            "mismatch/ratio_mean",
            "mismatch/clipped_fraction",
        ),
        "policy/tokens",
    ),
    **dict.fromkeys(("critic/clip_fraction", "critic/value_mean"), "critic/steps"),
    "supervised/loss": "supervised/tokens",
}
"""Sums that ``finish`` divides, and the count it divides them by."""


def describe(name: str) -> str | None:
    """Return the meaning of a logged name, or ``None`` if the glossary does not have it."""
    if name in METRICS:
        return METRICS[name]
    for pattern, meaning in METRICS.items():
        if "<" in pattern and re.fullmatch(re.sub("<[a-z]+>", ".+", pattern), name):
            return meaning
    return None


def merge(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Join sums over micro-batches or ranks: names that end in ``_max`` by the maximum, all others by addition.

    Values are floats or scalar tensors; a name may be absent from some parts.
    """
    merged: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            if name not in merged:
                merged[name] = value
            else:
                merged[name] = max(merged[name], value) if name.endswith("_max") else merged[name] + value
    return merged


def finish(sums: Mapping[str, Any]) -> dict[str, float]:
    """Turn the merged sums of an optimizer step into metrics: means are divided by their counts, unless those are 0."""
    metrics = {}
    for name, value in sums.items():
        count = float(sums[_MEAN_OVER[name]]) if name in _MEAN_OVER else 1.0
        metrics[name] = float(value) / count if count else 0.0
    return metrics


def average(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Join the finished metrics of an update's optimizer steps: their mean, and the maximum of ``_max``."""
    names = dict.fromkeys(name for step in steps for name in step)
    columns = {name: [step[name] for step in steps if name in step] for name in names}
    return {name: max(values) if name.endswith("_max") else ops.mean(values) for name, values in columns.items()}


@dataclass(frozen=True, slots=True)
class TrajectorySummary:
    """A trajectory without its tokens and texts: what metrics need of it."""

    group: int
    member: int
    success: bool
    end_reason: EndReason
    rewards: tuple[float, ...]
    prompt_lengths: tuple[int, ...]
    response_lengths: tuple[int, ...]
    finish_reasons: tuple[FinishReason, ...]
    parts: Mapping[str, float]
    """Sum over steps of each reward part."""
    metrics: Mapping[str, float]
    """``Trajectory.metrics``."""
    sample_s: float
    env_s: float
    """Seconds over all steps."""
    versions: tuple[int, ...] = ()
    """Policy version of each step."""
    branched: bool = False
    """Lengths, reasons and seconds are then of the steps after the branching point."""


def summarise(trajectory: Trajectory) -> TrajectorySummary:
    """Reduce a trajectory to what is gathered from all ranks."""
    steps, own = trajectory.steps, trajectory.steps[trajectory.shared_steps :]
    parts = dict.fromkeys(name for step in steps for name in step.reward_parts)
    return TrajectorySummary(
        group=trajectory.group,
        member=trajectory.member,
        success=trajectory.success,
        end_reason=trajectory.end_reason,
        rewards=trajectory.rewards,
        prompt_lengths=tuple(len(step.prompt_ids) for step in own),
        response_lengths=tuple(len(step.response_ids) for step in own),
        finish_reasons=tuple(step.finish_reason for step in own),
        parts={name: sum(step.reward_parts.get(name, 0.0) for step in steps) for name in parts},
        metrics=dict(trajectory.metrics),
        sample_s=sum(step.sample_s for step in own),
        env_s=sum(step.env_s for step in own),
        versions=tuple(step.policy_version for step in own),
        branched=trajectory.origin is not None,
    )


def rollout_metrics(summaries: Sequence[TrajectorySummary]) -> dict[str, float]:
    """Return the metrics of a rollout, over the trajectories of all ranks; their order does not matter."""
    returns = [sum(item.rewards) for item in summaries]
    steps = [len(item.rewards) for item in summaries]
    played = [len(item.response_lengths) for item in summaries]
    prompts = [length for item in summaries for length in item.prompt_lengths]
    responses = [length for item in summaries for length in item.response_lengths]
    ends = Counter(item.end_reason for item in summaries)
    finishes = Counter(reason for item in summaries for reason in item.finish_reasons)
    cut = len(summaries) - ends["terminated"] - ends["error"]
    metrics: dict[str, float] = {
        "rollout/trajectories": len(summaries),
        "rollout/groups": len({item.group for item in summaries}),
        "rollout/flat_groups": len(_flat_groups(summaries)),
        "rollout/success": ops.mean([float(item.success) for item in summaries]),
        "rollout/return_mean": ops.mean(returns),
        "rollout/return_std": ops.std(returns),
        "rollout/return_min": min(returns, default=0.0),
        "rollout/return_max": max(returns, default=0.0),
        "rollout/steps_mean": ops.mean(steps),
        "rollout/steps_max": max(steps, default=0),
        "rollout/branches": sum(item.branched for item in summaries),
        "rollout/tokens": sum(responses),
        "rollout/response_tokens_mean": ops.mean(responses),
        "rollout/response_tokens_max": max(responses, default=0),
        "rollout/prompt_tokens_mean": ops.mean(prompts),
        "rollout/prompt_tokens_max": max(prompts, default=0),
        "rollout/empty_responses": responses.count(0),
        "rollout/truncated_fraction": cut / len(summaries) if summaries else 0.0,
        "rollout/errors": ends["error"],
        "time/sample_step": ops.mean([item.sample_s for item in summaries]) / max(ops.mean(played), 1),
        "time/env_step": ops.mean([item.env_s for item in summaries]) / max(ops.mean(played), 1),
    }
    metrics |= {f"end/{reason}": ends[reason] for reason in get_args(EndReason)}
    metrics |= {f"finish/{reason}": finishes[reason] for reason in get_args(FinishReason)}
    for part in sorted({name for item in summaries for name in item.parts}):
        metrics[f"reward/{part}"] = ops.mean([item.parts.get(part, 0.0) for item in summaries])
    for name in sorted({name for item in summaries for name in item.metrics}):
        metrics[f"info/{name}"] = ops.mean([item.metrics[name] for item in summaries if name in item.metrics])
    return metrics


def staleness(versions: Mapping[int, int], now: int) -> dict[str, float]:
    """Return how far behind a rollout's weights are.

    Args:
        versions: policy version -> number of steps sampled with it.
        now: the version that the update starts from.
    """
    steps = sum(versions.values())
    behind = sum((now - version) * count for version, count in versions.items())
    return {
        "rollout/staleness_mean": behind / steps if steps else 0.0,
        "rollout/staleness_max": float(max((now - version for version in versions), default=0)),
    }


def credit_metrics(trajectories: Sequence[CreditTrajectory], credit: Credit | TokenCredit) -> dict[str, float]:
    """Return the metrics of credit assignment, over the whole batch."""
    steps = credit.of_steps() if isinstance(credit, TokenCredit) else credit
    counted = first_plays(trajectories)

    def once(rows: Sequence[Sequence[float]]) -> list[float]:
        pairs = (pair for row, plays in zip(rows, counted, strict=True) for pair in zip(row, plays, strict=True))
        return [value for value, first in pairs if first]

    advantages = once(steps.advantages)
    metrics = {
        "credit/advantage_mean": ops.mean(advantages),
        "credit/advantage_std": ops.std(advantages),
        "credit/advantage_abs_max": max(map(abs, advantages), default=0.0),
        "credit/raw_std": ops.std(once(steps.raw)),
    }
    targets, values = _values(trajectories, credit)
    spread = ops.std(targets)
    if spread > 0:
        residual = ops.std([target - value for target, value in zip(targets, values, strict=True)])
        metrics["critic/explained_variance"] = 1 - (residual / spread) ** 2
    return metrics


def _values(trajectories: Sequence[CreditTrajectory], credit: Credit | TokenCredit) -> tuple[list[float], list[float]]:
    """Return the critic's targets and its values; nothing without a critic."""
    if credit.returns is None:
        return [], []
    if isinstance(credit, TokenCredit):
        targets = [value for item in credit.returns for step in item for value in step]
        return targets, [value for item in trajectories for step in item.token_values or () for value in step]
    targets = [value for row in credit.returns for value in row]
    return targets, [value for item in trajectories for value in item.values or ()]


def _flat_groups(summaries: Sequence[TrajectorySummary]) -> frozenset[int]:
    sound = [item for item in summaries if item.end_reason != "error"]
    return flat_groups(
        [CreditTrajectory(item.group, item.member, item.rewards, (0,) * len(item.rewards)) for item in sound]
    )
