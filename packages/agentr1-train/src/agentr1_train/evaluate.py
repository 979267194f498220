"""Evaluation: fixed tasks, fixed noise, and the figures of every trajectory.

It works on one rank or on many (tasks are dealt by index and the rows gathered through a callable). It knows no metric
by name: every number of an episode's last ``info`` is averaged, so EM, F1 and the like are the environment's.
"""

import json
import math
import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agentr1_train.config import EnvConfig, EvaluationConfig, RayConfig, RolloutConfig
from agentr1_train.distributed import Gather
from agentr1_train.errors import ConfigError
from agentr1_train.flow import AgentEnvLoop, AgentFlow
from agentr1_train.pools import Pool
from agentr1_train.ray_pool import open_pool
from agentr1_train.renderer import Renderer
from agentr1_train.rollout import EVALUATION_STREAM, GroupSpec, Progress, collect, group_seed
from agentr1_train.sampler.base import MeteredSampler, Sampler
from agentr1_train.sampler.batching import PATIENCE_S
from agentr1_train.trajectory import Trajectory

_Z95 = 1.959963984540054  # normal quantile of a two-sided 95 % interval
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """One episode of an evaluation."""

    task: int
    """Index of the task in this evaluation."""
    sample: int
    task_id: str
    seed: int
    success: bool
    total_reward: float
    steps: int
    response_tokens: int
    end_reason: str
    error: str
    question: str
    """First observation."""
    responses: tuple[str, ...]
    final_observation: str
    reward_parts: Mapping[str, float]
    """Summed over the steps."""
    metrics: Mapping[str, float]
    """Numbers of the last ``info``."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All figures of one evaluation. Means are over episodes; an environment's number over those that gave it."""

    name: str
    env_id: str
    tasks: int
    samples: int
    success: float
    success_low: float
    """Lower end of the 95 % interval: Wilson's with one sample a task, else bootstrapped over tasks."""
    success_high: float
    pass_at: Mapping[int, float]
    """Probability that one of k samples succeeds; the unbiased estimator of Chen et al. 2021 (2107.03374)."""
    total_reward: float
    steps: float
    response_tokens: float
    reward_parts: Mapping[str, float]
    metrics: Mapping[str, float]
    end_reasons: Mapping[str, int]
    usage: Mapping[str, float]
    """What an endpoint was asked for and what it cost (``sampler.openai.Usage``); empty for a model that runs here."""
    rows: tuple[EvaluationRow, ...]
    """By task, then sample."""

    def figures(self) -> dict[str, float]:
        """Return the figures flat, as a tracker takes them; the package's own names go before an environment's."""
        episodes = len(self.rows)
        return {
            **self.metrics,
            **{f"reward/{name}": value for name, value in self.reward_parts.items()},
            **{f"pass@{k}": value for k, value in self.pass_at.items()},
            **{f"ended/{name}": count / episodes for name, count in self.end_reasons.items()},
            **{f"usage/{name}": value for name, value in self.usage.items()},
            "success": self.success,
            "success_low": self.success_low,
            "success_high": self.success_high,
            "return": self.total_reward,
            "steps": self.steps,
            "response_tokens": self.response_tokens,
        }


def evaluation_flow(renderer: Renderer, rollout: RolloutConfig, settings: EvaluationConfig) -> AgentEnvLoop:
    """Return the default flow with the evaluation's temperature and top-p."""
    return AgentEnvLoop(renderer, replace(rollout, temperature=settings.temperature, top_p=settings.top_p))


def open_evaluation_pool(
    config: EnvConfig, overlay: Mapping[str, Any] | None = None, ray: RayConfig | None = None
) -> Pool:
    """Return environments with ``env.eval_kwargs``, and ``overlay`` on top; in actors where ``ray`` asks for them.

    Raises:
        ConfigError: a setting in force is for training only (the environment tells: ``training_only``).
    """
    pool = open_pool(config, ray or RayConfig(), extra_kwargs={**config.eval_kwargs, **(overlay or {})})
    if pool.training_only:
        pool.close()
        raise ConfigError(
            f"{config.id}: {', '.join(pool.training_only)} of env.kwargs is for training only, and env.eval_kwargs "
            f"does not turn it off. Do it there: eval_kwargs = {{{pool.training_only[0]} = 0.0}}."
        )
    return pool


def evaluate(
    pool: Pool,
    sampler: Sampler,
    flow: AgentFlow,
    settings: EvaluationConfig,
    *,
    name: str,
    seed: int,
    concurrency: int,
    rank: int = 0,
    world: int = 1,
    gather: Gather | None = None,
    patience_s: float = PATIENCE_S,
    progress: Progress | None = None,
) -> Evaluation:
    """Play the evaluation's tasks and return its figures; the same on every rank.

    Args:
        pool: environments made with ``env.eval_kwargs``.
        sampler: the policy.
        flow: plays one episode, at the evaluation's temperature (``evaluation_flow``).
        settings: how many tasks and samples.
        name: of the files it is written to.
        seed: chooses tasks and noise: evaluations of one seed are paired, task by task.
        concurrency: episodes in flight on one rank.
        rank: this rank; it plays the tasks whose index is ``rank`` modulo ``world``.
        world: number of ranks.
        gather: needed when ``world`` is above 1.
        patience_s: as for ``collect``.
        progress: told after every episode of this rank.

    Raises:
        ConfigError: no task is asked for, or several samples at temperature 0, which would all be equal.
    """
    if settings.episodes < 1 or settings.samples < 1:
        raise ConfigError(
            f"evaluation.episodes = {settings.episodes}, evaluation.samples = {settings.samples}: at least 1 is needed."
        )
    if settings.samples > 1 and settings.temperature == 0:
        raise ConfigError(
            f"evaluation.samples = {settings.samples} at temperature 0 would be one sample repeated. "
            "Set evaluation.temperature above 0, or evaluation.samples to 1."
        )
    tasks = choose_tasks(pool.task_ids, settings.episodes, seed)
    before = _usage(sampler)
    groups = collect(
        pool,
        sampler,
        flow,
        tasks[rank::world],
        group_size=settings.samples,
        key=(seed, EVALUATION_STREAM),
        concurrency=concurrency,
        patience_s=patience_s,
        progress=progress,
    )
    rows = [_row(trajectory) for group in groups for trajectory in group.trajectories]
    if gather is not None:
        rows = [row for part in gather(rows) for row in part]
    usage = {item: value - before[item] for item, value in _usage(sampler).items()}
    return summarise_rows(rows, name=name, env_id=pool.env_id, usage=usage)


def _usage(sampler: Sampler) -> dict[str, float]:
    return sampler.usage if isinstance(sampler, MeteredSampler) else {}


def choose_tasks(task_ids: Sequence[str] | None, count: int, seed: int) -> list[GroupSpec]:
    """Return the tasks of an evaluation: named ones drawn without replacement (all, in order, if they are fewer than
    ``count``), or seeds that no training uses where the environment names none."""
    if task_ids is None:
        return [GroupSpec(index, group_seed(seed, 0, index, EVALUATION_STREAM)) for index in range(count)]
    chosen = list(task_ids) if len(task_ids) <= count else random.Random(seed).sample(list(task_ids), count)
    return [
        GroupSpec(index, group_seed(seed, 0, index, EVALUATION_STREAM), {"task_id": task})
        for index, task in enumerate(chosen)
    ]


def summarise_rows(
    rows: Iterable[EvaluationRow], *, name: str, env_id: str, usage: Mapping[str, float] | None = None
) -> Evaluation:
    """Return the figures of an evaluation's episodes, in any order."""
    rows = tuple(sorted(rows, key=lambda row: (row.task, row.sample)))
    by_task: dict[int, list[bool]] = defaultdict(list)
    for row in rows:
        by_task[row.task].append(row.success)
    solved = [(len(successes), sum(successes)) for successes in by_task.values()]
    samples = max(count for count, _ in solved)
    low, high = _interval(solved)
    return Evaluation(
        name=name,
        env_id=env_id,
        tasks=len(solved),
        samples=samples,
        success=_mean(row.success for row in rows),
        success_low=low,
        success_high=high,
        pass_at={k: _mean(pass_at_k(n, c, k) for n, c in solved) for k in _powers(min(n for n, _ in solved))},
        total_reward=_mean(row.total_reward for row in rows),
        steps=_mean(row.steps for row in rows),
        response_tokens=_mean(row.response_tokens for row in rows),
        reward_parts=_means(row.reward_parts for row in rows),
        metrics=_means(row.metrics for row in rows),
        end_reasons=dict(sorted(Counter(row.end_reason for row in rows).items())),
        usage=usage or {},
        rows=rows,
    )


def write_evaluation(evaluation: Evaluation, folder: Path) -> Path:
    """Write ``<name>.json`` (figures) and ``<name>.parquet`` (episodes), each whole or not at all; return the first."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {key: value for key, value in asdict(evaluation).items() if key != "rows"}
    table = pa.Table.from_pylist([_record(row) for row in evaluation.rows], schema=_schema(evaluation.rows))
    parquet, summary = folder / f"{evaluation.name}.parquet", folder / f"{evaluation.name}.json"
    partial = parquet.with_suffix(".parquet.partial")
    pq.write_table(table, partial)
    os.replace(partial, parquet)
    partial = summary.with_suffix(".json.partial")
    partial.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", "utf-8")
    os.replace(partial, summary)
    return summary


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """Return ``1 - C(n - c, k) / C(n, k)``: the chance that k of n samples, drawn apart, hold a success."""
    return 1.0 - math.comb(samples - successes, k) / math.comb(samples, k)


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % score interval of a proportion (Wilson 1927)."""
    share, z2 = successes / trials, _Z95**2 / trials
    middle = (share + z2 / 2) / (1 + z2)
    half = _Z95 / (1 + z2) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def _interval(solved: Sequence[tuple[int, int]]) -> tuple[float, float]:
    if all(count == 1 for count, _ in solved):
        return wilson_interval(sum(success for _, success in solved), len(solved))
    # Samples of one task hang together, so tasks are drawn again, not episodes.
    shares = np.array([success / count for count, success in solved])
    draws = np.random.default_rng(0).integers(len(shares), size=(_RESAMPLES, len(shares)))
    low, high = np.quantile(shares[draws].mean(1), (0.025, 0.975))
    return float(low), float(high)


def _powers(largest: int) -> list[int]:
    """Return 1, 2, 4, ... and ``largest``."""
    return sorted({*(2**i for i in range(largest.bit_length())), largest})


def _row(trajectory: Trajectory) -> EvaluationRow:
    parts: dict[str, float] = defaultdict(float)
    for step in trajectory.steps:
        for name, value in step.reward_parts.items():
            parts[name] += value
    return EvaluationRow(
        task=trajectory.group,
        sample=trajectory.member,
        task_id=trajectory.task_id,
        seed=trajectory.seed,
        success=trajectory.success,
        total_reward=trajectory.total_reward,
        steps=len(trajectory.steps),
        response_tokens=sum(len(step.response_ids) for step in trajectory.steps),
        end_reason=trajectory.end_reason,
        error=trajectory.error or "",
        question=trajectory.steps[0].observation if trajectory.steps else trajectory.final_observation,
        responses=tuple(step.action for step in trajectory.steps),
        final_observation=trajectory.final_observation,
        reward_parts=dict(parts),
        metrics=dict(trajectory.metrics),
    )


def _record(row: EvaluationRow) -> dict[str, Any]:
    record = {key: value for key, value in asdict(row).items() if key not in ("reward_parts", "metrics")}
    parts = {f"reward/{name}": value for name, value in row.reward_parts.items()}
    return record | parts | {f"metric/{name}": value for name, value in row.metrics.items()}


def _schema(rows: Sequence[EvaluationRow]) -> pa.Schema:
    """Return the columns: fixed ones, then every reward part and number that any episode has."""
    kinds = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    fields = [
        pa.field(name, kinds.get(kind, pa.list_(pa.string())))
        for name, kind in EvaluationRow.__annotations__.items()
        if name not in ("reward_parts", "metrics")
    ]
    parts = sorted({f"reward/{name}" for row in rows for name in row.reward_parts})
    numbers = sorted({f"metric/{name}" for row in rows for name in row.metrics})
    return pa.schema(fields + [pa.field(name, pa.float64()) for name in parts + numbers])


def _mean(values: Iterable[float]) -> float:
    numbers = [float(value) for value in values]
    return math.fsum(numbers) / len(numbers)


def _means(records: Iterable[Mapping[str, float]]) -> dict[str, float]:
    columns: dict[str, list[float]] = defaultdict(list)
    for record in records:
        for name, value in record.items():
            columns[name].append(value)
    return {name: _mean(values) for name, values in sorted(columns.items())}
