"""The warm start: a policy imitates demonstrations before reinforcement learning begins.

Demonstrations are played through the real environment by the real loop: their prompts are those the policy will meet.
The stage has an engine of its own and leaves a Hugging Face folder, ``RUN_DIR/supervised/model``, from which training
starts; its optimizer state is not carried over.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from agentr1_train import distributed
from agentr1_train.batch import MicroBatch, Row, assert_spans, pack
from agentr1_train.checkpoint import export_policy
from agentr1_train.config import Recipe
from agentr1_train.engine.deepspeed import DeepSpeedEngine
from agentr1_train.env_pool import TextEnv
from agentr1_train.errors import ConfigError
from agentr1_train.flow import AgentEnvLoop, Episode
from agentr1_train.losses import LossOutput
from agentr1_train.metrics import finish
from agentr1_train.policy import load_policy
from agentr1_train.ray_pool import open_pool
from agentr1_train.renderer import Renderer
from agentr1_train.rollout import GroupSpec, collect, group_seed
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.schedule import scheduled
from agentr1_train.tracking import read_rollouts
from agentr1_train.trajectory import Trajectory

SUPERVISED_STREAM = 2
"""Second entry of a seed's key: demonstrations share no task draw with training and evaluation."""

_RESPONSE = 1.0
"""Advantage that marks the rows of responses; those of whole transcripts have 0."""

Report = Callable[[int, dict[str, float]], None]
"""``report(batches done, metrics)``."""


class DemonstrationFlow:
    """Plays an environment's own ``demonstration()`` through the default loop."""

    def __init__(self, renderer: Renderer, loop: AgentEnvLoop) -> None:
        self._renderer, self._loop = renderer, loop

    async def run(self, episode: Episode) -> list[Trajectory]:
        """Return one trajectory whose responses are the demonstrated actions, each closed by an end token."""
        return await self._loop.run(replace(episode, sampler=_Demonstrator(episode.env, self._renderer)))


class _Demonstrator:
    """Answers like a sampler, out of a demonstration."""

    policy_version = 0

    def __init__(self, env: TextEnv, renderer: Renderer) -> None:
        self._env, self._renderer = env, renderer
        self._actions: Iterator[str] | None = None

    async def sample(self, prompt: Prompt, params: SamplingParams) -> Completion:
        if self._actions is None:
            try:
                actions = await self._env.demonstration()
            except Exception as error:
                raise ConfigError(
                    f"the demonstration of {self._env.env_id} failed: {type(error).__name__}: {error}"
                ) from error
            if actions is None:
                raise ConfigError(
                    f"{self._env.env_id} has no demonstration(). Set supervised.batches = 0, or name a parquet of "
                    "rollouts in supervised.demonstrations."
                )
            self._actions = iter(actions)
        action = next(self._actions, None)
        if action is None:
            raise ConfigError(f"the demonstration of {self._env.env_id} ended before its episode did.")
        ids = self._renderer.encode_response(action)
        return Completion(ids, (0.0,) * len(ids), "stop")


def train_supervised(
    recipe: Recipe, tokenizer: Any, device: torch.device, out: Path, report: Report | None = None
) -> Path:
    """Train on demonstrations and write the model to ``out``. Collective.

    Args:
        recipe: sections ``model``, ``env``, ``ray``, ``rollout`` (its limits), ``supervised`` and ``engine``.
        tokenizer: the policy's.
        device: from ``distributed.init``.
        out: folder of the model; appears whole or not at all, and takes the place of one that was there.
        report: told after every batch.

    Raises:
        ConfigError: the environment has no demonstrations, or none that succeeds.
    """
    engine = DeepSpeedEngine(
        load_policy(recipe.model, recipe.engine.dtype, packing=recipe.engine.packing, seed=recipe.seed),
        recipe.engine,
        recipe.optimizer,
        device,
        name="policy",
    )
    for batch, trajectories in enumerate(_batches(recipe, tokenizer)):
        lr = scheduled(recipe.supervised.lr, batch / recipe.supervised.batches, recipe.supervised.schedule)
        metrics = _step(engine, trajectories, recipe, lr)
        if report is not None:
            report(batch + 1, metrics)
    export_policy(engine, tokenizer, out)
    engine.close()  # training has an engine of its own, which needs the memory
    return out


def _batches(recipe: Recipe, tokenizer: Any) -> Iterator[list[Trajectory]]:
    """Yield this rank's demonstrations, batch after batch."""
    settings, rank, world = recipe.supervised, distributed.rank(), distributed.world_size()
    if settings.demonstrations:
        yield from _recorded(recipe, rank, world)
        return
    renderer = Renderer(tokenizer, context=recipe.rollout.context, path=recipe.model.path)
    flow = DemonstrationFlow(renderer, AgentEnvLoop(renderer, recipe.rollout))
    with open_pool(recipe.env, recipe.ray) as pool:
        for batch in range(settings.batches):
            specs = [
                GroupSpec(index, group_seed(recipe.seed, batch, index, SUPERVISED_STREAM))
                for index in range(rank, settings.batch_size, world)
            ]
            groups = collect(
                pool,
                _NoSampler(),
                flow,
                specs,
                group_size=1,
                key=(recipe.seed, SUPERVISED_STREAM, batch),
                concurrency=recipe.rollout.concurrency,
            )
            yield [item for group in groups for item in group.trajectories]


def _recorded(recipe: Recipe, rank: int, world: int) -> Iterator[list[Trajectory]]:
    """Yield batches of the successful trajectories in a rollout file, in its order, over again when they run out."""
    path = Path(recipe.supervised.demonstrations)
    found = [item for item in read_rollouts(path) if item.success or recipe.supervised.failures]
    if not found:
        raise ConfigError(f"{path} holds no successful trajectory to imitate.")
    stream = itertools.cycle(found)
    for _ in range(recipe.supervised.batches):
        yield list(itertools.islice(stream, recipe.supervised.batch_size))[rank::world]


class _NoSampler:
    """Stands where ``collect`` wants a sampler; demonstrations never ask it."""

    policy_version = 0

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Completion]:
        raise AssertionError("a demonstration asked the sampler")

    def load_weights(self, version: int, tensors: object) -> None:
        raise AssertionError("a demonstration has no weights")

    def close(self) -> None:
        pass


def _step(engine: DeepSpeedEngine, trajectories: Sequence[Trajectory], recipe: Recipe, lr: float) -> dict[str, float]:
    """Take one step on the mean negative log-likelihood of the demonstrated tokens of all ranks."""
    everything = recipe.supervised.failures
    shown = [item for item in trajectories if item.success or (everything and not item.error)]
    failed = [
        item.error or f"it ended as {item.end_reason}, without success"
        for item in trajectories
        if not item.success and (item.error or not everything)
    ]
    steps = [
        Row(step.prompt_ids, step.response_ids, (item.group, item.member), advantage=_RESPONSE)
        for item in shown
        for step in item.steps
    ]
    texts = transcripts(shown) if recipe.supervised.transcript else []
    mine = sum(len(row.response_ids) for row in steps), sum(len(row.response_ids) for row in texts), failed
    counts = distributed.all_gather_object(mine)
    tokens, words = sum(count for count, _, _ in counts), sum(count for _, count, _ in counts)
    errors = [text for _, _, found in counts for text in found]
    if not tokens:
        raise ConfigError(f"no demonstration of the batch succeeded: {errors[0] if errors else 'there are none'}.")
    rows = [replace(row, weight=1 / tokens) for row in steps]
    rows += [replace(row, weight=recipe.supervised.transcript / words) for row in texts]
    packed = pack(rows, recipe.engine.micro_batch_tokens, packing=recipe.engine.packing)
    assert_spans(packed, rows)
    sums = engine.forward_backward(packed, _imitation)
    taken = engine.optim_step(lr)
    return finish(sums) | {
        "supervised/grad_norm": taken["grad_norm"],
        "supervised/lr": lr,
        "supervised/failed": float(len(errors)),
    }


def transcripts(trajectories: Sequence[Trajectory]) -> list[Row]:
    """All tokens of the trajectories but the first, as rows: what was read and what was said, each line of text once.

    A step that the next step's prompt continues is part of the next step's row.
    """
    rows: list[Row] = []
    for item in trajectories:
        lines = [step.prompt_ids + step.response_ids for step in item.steps]
        for line, after in itertools.zip_longest(lines, lines[1:], fillvalue=()):
            if after[: len(line)] != line:
                rows.append(Row(line[:1], line[1:], (item.group, item.member)))
    return rows


def _imitation(output: tuple[Tensor, Tensor], batch: MicroBatch) -> LossOutput:
    """Add the weighted negative log-likelihoods; count those of responses, which alone carry an advantage."""
    logp, _ = output
    said = batch.advantage == _RESPONSE
    sums = {"supervised/loss": -logp.detach()[said].double().sum(), "supervised/tokens": said.sum().float()}
    return LossOutput(-(batch.weight * logp).sum(), sums)
