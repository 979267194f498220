"""The loop: roll out, assign credit, update, sync. ``train`` reads top to bottom.

What each call does is in the module it comes from; here is only their order, what is written down, and how a run
starts, stops and resumes.
"""

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from agentr1_train import distributed
from agentr1_train.batch import Row
from agentr1_train.branching import BranchingEnvLoop
from agentr1_train.checkpoint import export_policy, latest, load_checkpoint, read_untrained, save_checkpoint
from agentr1_train.collection import Collected, Collector, collect_update, dump_collected
from agentr1_train.config import ModelConfig, Recipe
from agentr1_train.critic import load_critic
from agentr1_train.engine.deepspeed import AdapterFree, DeepSpeedEngine, FrozenModel
from agentr1_train.errors import CheckpointError, ConfigError, StoppedError
from agentr1_train.evaluate import Evaluation, evaluate, evaluation_flow, open_evaluation_pool, write_evaluation
from agentr1_train.experience import Experience, Models, build_experience
from agentr1_train.flow import AgentEnvLoop, AgentFlow
from agentr1_train.losses import adapt_kl_coef
from agentr1_train.metrics import staleness
from agentr1_train.plots import plot_curve
from agentr1_train.policy import load_policy, load_reference
from agentr1_train.pools import Pool
from agentr1_train.preflight import check
from agentr1_train.presets import AlgorithmSettings, resolve
from agentr1_train.ray_pool import open_pool
from agentr1_train.renderer import Renderer, load_tokenizer
from agentr1_train.rollouts_ahead import RolloutsAhead, open_ahead
from agentr1_train.run_folder import check_folder, is_of, open_tracker, where_to_go_on
from agentr1_train.sampler.base import Sampler, Sleeper
from agentr1_train.sampler.build import build_sampler, sampling_tokenizer
from agentr1_train.stopping import StopRequest
from agentr1_train.supervised import train_supervised
from agentr1_train.tracking import Mark, Tracker, rollout_path, write_rollouts
from agentr1_train.update import update_models
from agentr1_train.weight_sync import copy_weights, sync_weights
from agentr1_train.weights_check import check_weights


def train(recipe: Recipe, *, resume: bool = False) -> Path:
    """Train by a recipe and return the run folder.

    Args:
        recipe: one run.
        resume: continue the newest whole checkpoint of ``recipe.run_dir`` (from the start when there is none).

    Raises:
        StoppedError: SIGTERM came; the running update was finished and its checkpoint written.
        AgentR1Error: anything a user can mend; the message says how.
    """
    with open_run(recipe, resume) as run, StopRequest() as stop:
        if run.update == 0:
            run.evaluate()
        for update in range(run.update, recipe.updates):
            collected = run.roll_out(update)
            experience = run.assign_credit(collected, update)
            run.learn(experience, update)
            run.write_down(collected, experience, update)
            run.checkpoint_or_evaluate()
            run.stop_if(stop.requested())
        run.finish()
    return Path(recipe.run_dir)


@dataclass
class Run:
    """Everything that lives as long as a run. Methods are collective: every rank calls them in the same order."""

    recipe: Recipe
    settings: AlgorithmSettings
    folder: Path
    tokenizer: Any
    collector: Collector
    sampler: Sampler
    models: Models
    evaluation_pool: Pool | None
    """None when the recipe evaluates nothing."""
    ahead: RolloutsAhead | None = None
    """Plays while updates run; None at ``rollout.async_level`` 0."""
    tracker: Tracker | None = None
    """Only on rank 0."""
    update: int = 0
    """Updates done."""
    saved: int = -1
    """Updates that the newest checkpoint holds; -1 before the first."""
    metrics: dict[str, float] | None = None
    """Of the update in progress."""
    rows: tuple[Row, ...] = ()
    """This rank's, of the update that was done last."""

    @property
    def version(self) -> int:
        """Version of the policy's weights: the number of weight syncs."""
        return self.sampler.policy_version if self.ahead is None else self.ahead.version

    def roll_out(self, update: int) -> Collected:
        """Play this rank's part of an update, or take what was played ahead.

        Raises:
            RolloutError: more trajectories failed than ``rollout.max_error_fraction`` allows, over all ranks.
        """
        self.metrics = {}
        with self._timed("rollout"):
            if self.ahead is None:
                collected = collect_update(self.collector, self.recipe, self.settings, update)
                if isinstance(self.sampler, Sleeper):
                    self.sampler.sleep()
            else:
                collected = self.ahead.take(update)
        self.metrics |= collected.metrics | staleness(collected.versions, self.version)
        return collected

    def assign_credit(self, collected: Collected, update: int) -> Experience:
        """Evaluate the rollout under policy, reference and critic, and give every step its advantage."""
        with self._timed("experience"):
            return build_experience(
                collected.groups, self.models, self.recipe, self.settings, seed=update, greedy=collected.greedy
            )

    def learn(self, experience: Experience, update: int) -> None:
        """Take the optimizer steps and hand the new weights to the sampler."""
        with self._timed("update"):
            metrics = update_models(experience, self.models, self.recipe, self.settings, update)
        with self._timed("sync"):
            if self.ahead is None:
                version = sync_weights(self.models.policy, self.sampler)
            else:
                version = self.ahead.hold(copy_weights(self.models.policy))
        if self.settings.kl != "none":
            metrics["policy/kl_coef"] = self.settings.kl_coef
        if self.settings.kl_target and "policy/kl_ref" in metrics:
            coef = adapt_kl_coef(self.settings.kl_coef, metrics["policy/kl_ref"], self.settings.kl_target)
            self.settings = replace(self.settings, kl_coef=coef)
        self._add(experience.metrics | metrics | {"policy/version": float(version)})
        self.update, self.rows = update + 1, experience.rows

    def write_down(self, collected: Collected, experience: Experience, update: int) -> None:
        """Write the update's metrics and, when it is their turn, its trajectories."""
        every = self.recipe.tracking.rollouts_every
        if _due(every, self.update):
            gathered = distributed.all_gather_object(collected.groups)
            if distributed.is_main():
                ordered = sorted(chain(*gathered), key=lambda group: group.index)
                advantages = {
                    (item.group, item.member): row
                    for item, row in zip(experience.records, experience.credit.advantages, strict=True)
                }
                trajectories = [item for group in ordered for item in group.trajectories]
                write_rollouts(rollout_path(self.folder, self.update), trajectories, advantages)
        if self.tracker is not None:
            self.tracker.log("update", self.update, self.metrics or {})

    def checkpoint_or_evaluate(self) -> None:
        """Do what is due after an update; a checkpoint comes last, so that it holds the evaluation's event."""
        last = self.update == self.recipe.updates
        if last or _due(self.recipe.evaluation.every, self.update):
            self.evaluate()
        if last or _due(self.recipe.checkpoint.every, self.update):
            self.save()

    def evaluate(self) -> None:
        """Evaluate on the recipe's evaluation tasks, and write and log what came out."""
        if self.evaluation_pool is None:
            return
        if self.ahead is not None:
            self.ahead.refresh()
        started = time.perf_counter()
        name = f"step_{self.update:06d}"
        evaluation = evaluate_policy(self.recipe, self.evaluation_pool, self.tokenizer, self.sampler, name)
        if self.tracker is not None:
            figures = {f"eval/{name}": value for name, value in evaluation.figures().items()}
            self.tracker.log("evaluation", self.update, figures | {"time/evaluation": time.perf_counter() - started})

    def save(self) -> None:
        """Write a checkpoint, and in it what was played ahead of its update.

        Raises:
            NonFiniteLossError: nobody could resume from these weights.
        """
        engines = {"policy": self.models.policy}
        if self.models.critic is not None:
            engines["critic"] = self.models.critic
        check_weights(engines.values(), self.rows)
        mark = asdict(self.tracker.mark(self.update)) if self.tracker is not None else {}
        state = {"mark": mark, "kl_coef": self.settings.kl_coef, "version": self.version}
        untrained = dump_collected(self.ahead.settle()) if self.ahead is not None else ""
        save_checkpoint(self.folder, self.update, engines, state, self.recipe, untrained)
        self.saved = self.update

    def stop_if(self, requested: bool) -> None:
        """End a run that was told to stop, behind a checkpoint. After the last update there is nothing to stop.

        Raises:
            StoppedError: it was told to.
        """
        if requested and self.update < self.recipe.updates:
            if self.saved != self.update:
                self.save()
            raise StoppedError(
                f"stopped by SIGTERM after update {self.update} of {self.recipe.updates}; its checkpoint is written, "
                "and --resume continues from there."
            )

    def restore(self, folder: Path) -> None:
        """Go back to a checkpoint, the sampler's weights and version included."""
        engines = {"policy": self.models.policy}
        if self.models.critic is not None:
            engines["critic"] = self.models.critic
        state = load_checkpoint(folder, engines, self.recipe)
        self.settings = replace(self.settings, kl_coef=state["kl_coef"])
        self.update = self.saved = state["mark"]["step"]
        sync_weights(self.models.policy, self.sampler, state["version"])

    def finish(self) -> None:
        """Export the policy and draw the curve."""
        if self.recipe.checkpoint.export:
            export_policy(self.models.policy, self.tokenizer, self.folder / "model")
        if distributed.is_main():
            plot_curve(self.folder)

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._add({f"time/{name}": time.perf_counter() - started})

    def _add(self, metrics: dict[str, float]) -> None:
        self.metrics = (self.metrics or {}) | metrics


@contextlib.contextmanager
def open_run(recipe: Recipe, resume: bool = False) -> Iterator[Run]:
    """Make everything a run needs, resumed where asked for, and close it again.

    What can be refused is refused before anything is written: the run folder is opened last, or by the warm start when
    its first batch is done.
    """
    check(recipe)
    settings = resolve(recipe.algorithm, recipe.optimizer)
    device = distributed.init(recipe.engine.device, recipe.engine.threads)
    folder = Path(recipe.run_dir)
    check_folder(folder, resume)
    with contextlib.ExitStack() as stack:
        tokenizer = load_tokenizer(recipe.model.path, recipe.model.chat_template)
        renderer = Renderer(tokenizer, context=recipe.rollout.context, path=recipe.model.path)
        pool = stack.enter_context(open_pool(recipe.env, recipe.ray))
        evaluation_pool: Pool | None = None
        if recipe.evaluation.episodes:
            evaluation_pool = stack.enter_context(open_evaluation_pool(recipe.env, ray=recipe.ray))
        sampler = build_sampler(recipe.sampler, recipe.model, tokenizer, device)
        stack.callback(sampler.close)
        checkpoint = latest(folder) if resume else None
        if recipe.supervised.batches and isinstance(sampler, Sleeper):
            sampler.sleep()  # until it gets the first weights
        start = _start_model(recipe, tokenizer, device, checkpoint)
        run = Run(
            recipe=recipe,
            settings=settings,
            folder=folder,
            tokenizer=tokenizer,
            collector=Collector(pool, sampler, *_flows(renderer, recipe)),
            sampler=sampler,
            models=_load_models(recipe, replace(recipe.model, path=str(start)), settings, device),
            evaluation_pool=evaluation_pool,
        )
        if checkpoint is not None:
            run.restore(checkpoint)
        elif recipe.supervised.batches:
            sync_weights(run.models.policy, sampler, version=0)
        if recipe.rollout.async_level:
            untrained = read_untrained(checkpoint) if checkpoint is not None else ""
            run.ahead = stack.enter_context(open_ahead(run.collector, recipe, settings, run.update, untrained))
        if distributed.is_main():
            run.tracker = stack.enter_context(open_tracker(recipe, folder, where_to_go_on(recipe, folder, checkpoint)))
        yield run
        run.models.close()


def _flows(renderer: Renderer, recipe: Recipe) -> tuple[AgentFlow, AgentFlow]:
    """Return the flow that samples and the one that is greedy."""
    greedy = AgentEnvLoop(renderer, replace(recipe.rollout, temperature=0.0, top_p=1.0))
    if recipe.rollout.branch_width > 1:
        return BranchingEnvLoop(renderer, recipe.rollout), greedy
    return AgentEnvLoop(renderer, recipe.rollout), greedy


def supervised_only(recipe: Recipe) -> Path:
    """Do only the warm start and return the folder of the model.

    Raises:
        ConfigError: ``supervised.batches`` is 0, or the folder holds a run.
    """
    if not recipe.supervised.batches:
        raise ConfigError("supervised.batches is 0: give the number of batches, --supervised.batches 20.")
    check(recipe)
    device = distributed.init(recipe.engine.device, recipe.engine.threads)
    check_folder(Path(recipe.run_dir), resume=False)
    tokenizer = load_tokenizer(recipe.model.path, recipe.model.chat_template)
    return _start_model(recipe, tokenizer, device, checkpoint=None)


def evaluate_only(recipe: Recipe, name: str = "evaluation") -> Evaluation:
    """Evaluate ``recipe.model.path`` or an endpoint as it is, without an engine; write ``RUN_DIR/evaluations/<name>``.

    Returns the figures on every rank.

    Raises:
        ConfigError: the recipe asks for no episode.
        EndpointError: the endpoint cannot be used.
    """
    if not recipe.evaluation.episodes:
        raise ConfigError("evaluation.episodes is 0: give the number of tasks, --evaluation.episodes 200.")
    check(recipe, training=False)
    device = distributed.init(recipe.engine.device, recipe.engine.threads)
    if recipe.sampler.name == "openai" and distributed.world_size() > 1:
        raise ConfigError(
            f"sampler.name = 'openai' on {distributed.world_size()} ranks: one process keeps the rate limit and the "
            "count. Evaluate without the launcher; rollout.concurrency says how many episodes run side by side."
        )
    tokenizer = sampling_tokenizer(recipe)
    with (
        open_evaluation_pool(recipe.env, ray=recipe.ray) as pool,
        contextlib.closing(build_sampler(recipe.sampler, recipe.model, tokenizer, device, recipe.endpoint)) as sampler,
    ):
        return evaluate_policy(recipe, pool, tokenizer, sampler, name)


def evaluate_policy(recipe: Recipe, pool: Pool, tokenizer: Any, sampler: Sampler, name: str) -> Evaluation:
    """Evaluate what the sampler holds on the recipe's evaluation tasks and write it to the run folder. Collective."""
    renderer = Renderer(tokenizer, context=recipe.rollout.context, path=recipe.model.path)
    evaluation = evaluate(
        pool,
        sampler,
        evaluation_flow(renderer, recipe.rollout, recipe.evaluation),
        recipe.evaluation,
        name=name,
        seed=recipe.seed,
        concurrency=recipe.rollout.concurrency,
        patience_s=recipe.rollout.patience_s,
        rank=distributed.rank(),
        world=distributed.world_size(),
        gather=distributed.all_gather_object,
    )
    if distributed.is_main():
        write_evaluation(evaluation, Path(recipe.run_dir) / "evaluations")
    return evaluation


def _start_model(recipe: Recipe, tokenizer: Any, device: torch.device, checkpoint: Path | None) -> Path:
    """Return the folder that the policy starts from: the recipe's, or what the warm start made of it, once."""
    if not recipe.supervised.batches:
        return Path(recipe.model.path)
    folder = Path(recipe.run_dir)
    out = folder / "supervised" / "model"
    if distributed.broadcast_object(out.exists() and (checkpoint is not None or is_of(recipe, folder))):
        return out
    if checkpoint is not None:
        raise CheckpointError(f"{checkpoint} started from {out}, which is gone. Start a new run in another run_dir.")
    with contextlib.ExitStack() as stack:

        def report(batch: int, metrics: dict[str, float]) -> None:
            if batch == 1:
                shutil.rmtree(out, ignore_errors=True)
                trackers.append(stack.enter_context(open_tracker(recipe, folder, Mark(offset=0, step=0))))
            trackers[0].log("supervised", batch, metrics)

        trackers: list[Tracker] = []
        return train_supervised(recipe, tokenizer, device, out, report if distributed.is_main() else None)


def _load_models(recipe: Recipe, model: ModelConfig, settings: AlgorithmSettings, device: torch.device) -> Models:
    """Load policy, critic and reference as the algorithm needs them."""
    dtype, packing, temperature = recipe.engine.dtype, recipe.engine.packing, recipe.rollout.temperature
    policy = load_policy(model, dtype, temperature, settings.entropy_coef > 0, packing, recipe.seed)
    engine = DeepSpeedEngine(policy, recipe.engine, recipe.optimizer, device, name="policy")
    critic = reference = None
    if settings.needs_critic:
        values = load_critic(model, dtype, packing, settings.by_token, recipe.seed)
        critic = DeepSpeedEngine(values, recipe.engine, recipe.optimizer, device, name="critic")
    if settings.needs_reference and model.lora_rank:
        reference = AdapterFree(engine)
    elif settings.needs_reference:
        reference = FrozenModel(load_reference(model, dtype, temperature, packing), recipe.engine, device)
    return Models(engine, critic, reference)


def _due(every: int, update: int) -> bool:
    return every > 0 and update % every == 0
