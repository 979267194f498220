"""The loop: roll out, assign credit, update, sync. ``train`` reads top to bottom.

What each call does is in the module it comes from; here is only their order, what is written down, and how a run
starts, stops and resumes.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from agentr1_train import distributed
from agentr1_train.advantages.registry import get_estimator
from agentr1_train.checkpoint import export_policy, latest, load_checkpoint, read_state, save_checkpoint
from agentr1_train.config import ModelConfig, Recipe, to_dict, to_toml
from agentr1_train.critic import load_critic
from agentr1_train.engine.deepspeed import DeepSpeedEngine, FrozenModel
from agentr1_train.env_pool import EnvPool
from agentr1_train.errors import ConfigError, RolloutError
from agentr1_train.evaluate import Evaluation, evaluate, evaluation_flow, write_evaluation
from agentr1_train.experience import Experience, Models, build_experience
from agentr1_train.flow import AgentEnvLoop, AgentFlow
from agentr1_train.losses import adapt_kl_coef
from agentr1_train.metrics import rollout_metrics, summarise
from agentr1_train.plots import plot_curve
from agentr1_train.policy import load_policy, load_reference
from agentr1_train.presets import AlgorithmSettings, resolve
from agentr1_train.renderer import Renderer, load_tokenizer
from agentr1_train.rollout import TRAIN_STREAM, collect, failures, update_groups
from agentr1_train.sampler.base import Sampler
from agentr1_train.sampler.build import build_sampler
from agentr1_train.supervised import train_supervised
from agentr1_train.tracking import EVENTS_FILE, Mark, Tracker, rollout_path, write_rollouts
from agentr1_train.trajectory import TrajectoryGroup
from agentr1_train.update import update_models
from agentr1_train.weight_sync import sync_weights


def train(recipe: Recipe, *, resume: bool = False) -> Path:
    """Train by a recipe and return the run folder.

    Args:
        recipe: one run.
        resume: continue the newest whole checkpoint of ``recipe.run_dir`` (from the start when there is none).

    Raises:
        AgentR1Error: anything a user can mend; the message says how.
    """
    with open_run(recipe, resume) as run:
        if run.update == 0:
            run.evaluate()
        for update in range(run.update, recipe.updates):
            groups = run.roll_out(update)
            experience = run.assign_credit(groups, update)
            run.learn(experience, update)
            run.write_down(groups, experience, update)
            run.checkpoint_or_evaluate()
        run.finish()
    return Path(recipe.run_dir)


@dataclass
class Run:
    """Everything that lives as long as a run. Methods are collective: every rank calls them in the same order."""

    recipe: Recipe
    settings: AlgorithmSettings
    folder: Path
    tokenizer: Any
    pool: EnvPool
    flow: AgentFlow
    sampler: Sampler
    models: Models
    tracker: Tracker | None
    """Only on rank 0."""
    update: int = 0
    """Updates done."""
    metrics: dict[str, float] | None = None
    """Of the update in progress."""

    def roll_out(self, update: int) -> list[TrajectoryGroup]:
        """Play this rank's groups of an update.

        Raises:
            RolloutError: more trajectories failed than ``rollout.max_error_fraction`` allows, over all ranks.
        """
        rollout, rank, world = self.recipe.rollout, distributed.rank(), distributed.world_size()
        self.metrics = {}
        with self._timed("rollout"):
            groups = collect(
                self.pool,
                self.sampler,
                self.flow,
                update_groups(self.recipe.seed, update, rollout.groups, rank=rank, world=world),
                group_size=rollout.group_size,
                key=(self.recipe.seed, TRAIN_STREAM, update),
                concurrency=rollout.concurrency,
            )
            played = [item for group in groups for item in group.trajectories]
            summaries = chain(*distributed.all_gather_object([summarise(item) for item in played]))
            reasons = distributed.all_gather_object(failures(played)[1])
        self.metrics |= rollout_metrics(sorted(summaries, key=lambda item: (item.group, item.member)))
        failed = self.metrics["rollout/errors"] / self.metrics["rollout/trajectories"]
        if failed > rollout.max_error_fraction:
            raise RolloutError(
                f"update {update}: {failed:.0%} of the trajectories failed, more than rollout.max_error_fraction = "
                f"{rollout.max_error_fraction:g} allows. The commonest reason: {next(filter(None, reasons))}"
            )
        return groups

    def assign_credit(self, groups: list[TrajectoryGroup], update: int) -> Experience:
        """Evaluate the rollout under policy, reference and critic, and give every step its advantage."""
        with self._timed("experience"):
            return build_experience(groups, self.models, self.recipe, self.settings, seed=update)

    def learn(self, experience: Experience, update: int) -> None:
        """Take the optimizer steps and hand the new weights to the sampler."""
        with self._timed("update"):
            metrics = update_models(experience, self.models, self.recipe, self.settings, update)
        with self._timed("sync"):
            version = sync_weights(self.models.policy, self.sampler)
        if self.settings.kl != "none":
            metrics["policy/kl_coef"] = self.settings.kl_coef
        if self.settings.kl_target and "policy/kl_ref" in metrics:
            coef = adapt_kl_coef(self.settings.kl_coef, metrics["policy/kl_ref"], self.settings.kl_target)
            self.settings = replace(self.settings, kl_coef=coef)
        self._add(experience.metrics | metrics | {"policy/version": float(version)})
        self.update = update + 1

    def write_down(self, groups: list[TrajectoryGroup], experience: Experience, update: int) -> None:
        """Write the update's metrics and, when it is their turn, its trajectories."""
        every = self.recipe.tracking.rollouts_every
        if every and update % every == 0:
            gathered = distributed.all_gather_object(groups)
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
        if not self.recipe.evaluation.episodes:
            return
        started = time.perf_counter()
        evaluation = evaluate_policy(self.recipe, self.tokenizer, self.sampler, f"step_{self.update:06d}")
        if self.tracker is not None:
            figures = {f"eval/{name}": value for name, value in evaluation.figures().items()}
            self.tracker.log("evaluation", self.update, figures | {"time/evaluation": time.perf_counter() - started})

    def save(self) -> None:
        """Write a checkpoint."""
        engines = {"policy": self.models.policy}
        if self.models.critic is not None:
            engines["critic"] = self.models.critic
        mark = asdict(self.tracker.mark(self.update)) if self.tracker is not None else {}
        state = {"mark": mark, "kl_coef": self.settings.kl_coef, "version": self.sampler.policy_version}
        save_checkpoint(self.folder, self.update, engines, state, self.recipe)

    def restore(self, folder: Path) -> None:
        """Go back to a checkpoint, the sampler's weights and version included."""
        engines = {"policy": self.models.policy}
        if self.models.critic is not None:
            engines["critic"] = self.models.critic
        state = load_checkpoint(folder, engines, self.recipe)
        self.settings = replace(self.settings, kl_coef=state["kl_coef"])
        self.update = state["mark"]["step"]
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

    What can be refused is refused before anything is written.
    """
    check(recipe)
    settings = resolve(recipe.algorithm, recipe.optimizer)
    device = distributed.init(recipe.engine.device, recipe.engine.threads)
    folder = Path(recipe.run_dir)
    _check_folder(folder, resume)
    with contextlib.ExitStack() as stack:
        tokenizer = load_tokenizer(recipe.model.path, recipe.model.chat_template)
        renderer = Renderer(tokenizer, context=recipe.rollout.context, path=recipe.model.path)
        pool = stack.enter_context(EnvPool(recipe.env))
        checkpoint = latest(folder) if resume else None
        tracker = stack.enter_context(_open_tracker(recipe, folder, checkpoint)) if distributed.is_main() else None
        model = replace(recipe.model, path=str(_start_model(recipe, tokenizer, device, tracker)))
        sampler = build_sampler(recipe.sampler, model, tokenizer, device)
        stack.callback(sampler.close)
        models = _load_models(recipe, model, settings, device)
        run = Run(
            recipe=recipe,
            settings=settings,
            folder=folder,
            tokenizer=tokenizer,
            pool=pool,
            flow=AgentEnvLoop(renderer, recipe.rollout),
            sampler=sampler,
            models=models,
            tracker=tracker,
        )
        if checkpoint is not None:
            run.restore(checkpoint)
        yield run


def supervised_only(recipe: Recipe) -> Path:
    """Do only the warm start and return the folder of the model.

    Raises:
        ConfigError: ``supervised.batches`` is 0.
    """
    if not recipe.supervised.batches:
        raise ConfigError("supervised.batches is 0: give the number of batches, --supervised.batches 20.")
    check(recipe)
    device = distributed.init(recipe.engine.device, recipe.engine.threads)
    folder = Path(recipe.run_dir)
    _check_folder(folder, resume=False)
    tokenizer = load_tokenizer(recipe.model.path, recipe.model.chat_template)
    with contextlib.ExitStack() as stack:
        tracker = stack.enter_context(_open_tracker(recipe, folder, None)) if distributed.is_main() else None
        return _start_model(recipe, tokenizer, device, tracker)


def evaluate_only(recipe: Recipe, name: str = "evaluation") -> Evaluation | None:
    """Evaluate ``recipe.model.path`` as it is, without an engine, and write ``RUN_DIR/evaluations/<name>``.

    Returns the figures on every rank.

    Raises:
        ConfigError: the recipe asks for no episode.
    """
    if not recipe.evaluation.episodes:
        raise ConfigError("evaluation.episodes is 0: give the number of tasks, --evaluation.episodes 200.")
    check(recipe, training=False)
    device = distributed.init(recipe.engine.device, recipe.engine.threads)
    tokenizer = load_tokenizer(recipe.model.path, recipe.model.chat_template)
    with contextlib.closing(build_sampler(recipe.sampler, recipe.model, tokenizer, device)) as sampler:
        return evaluate_policy(recipe, tokenizer, sampler, name)


def evaluate_policy(recipe: Recipe, tokenizer: Any, sampler: Sampler, name: str) -> Evaluation:
    """Evaluate what the sampler holds on the recipe's evaluation tasks and write it to the run folder. Collective."""
    renderer = Renderer(tokenizer, context=recipe.rollout.context, path=recipe.model.path)
    with EnvPool(recipe.env, extra_kwargs=recipe.env.eval_kwargs) as pool:
        evaluation = evaluate(
            pool,
            sampler,
            evaluation_flow(renderer, recipe.rollout, recipe.evaluation),
            recipe.evaluation,
            name=name,
            seed=recipe.seed,
            concurrency=recipe.rollout.concurrency,
            rank=distributed.rank(),
            world=distributed.world_size(),
            gather=distributed.all_gather_object,
        )
    if distributed.is_main():
        write_evaluation(evaluation, Path(recipe.run_dir) / "evaluations")
    return evaluation


def check(recipe: Recipe, *, training: bool = True) -> None:
    """Refuse what can be refused before anything is loaded or written.

    Raises:
        ConfigError: names the field, what it is and what is legal.
    """
    if not recipe.run_dir:
        raise ConfigError("run_dir is empty: name the folder that the run writes into.")
    if not training:
        return
    rollout, counts = recipe.rollout, {"rollout.groups": recipe.rollout.groups, "updates": recipe.updates}
    counts |= {"rollout.group_size": rollout.group_size, "optimizer.epochs": recipe.optimizer.epochs}
    counts |= {"rollout.concurrency": rollout.concurrency, "optimizer.minibatches": recipe.optimizer.minibatches}
    for name, count in counts.items():
        if count < 1:
            raise ConfigError(f"{name} = {count}: at least 1 is needed.")
    if rollout.temperature <= 0:
        raise ConfigError(f"rollout.temperature = {rollout.temperature:g}: training samples, so it must be above 0.")
    settings = resolve(recipe.algorithm, recipe.optimizer)
    if rollout.group_size == 1 and (get_estimator(settings.estimator).by_group or settings.permute_returns == "group"):
        raise ConfigError(
            f"rollout.group_size = 1: estimator {settings.estimator!r} compares trajectories of one group, "
            "so at least 2 are needed."
        )


def _check_folder(folder: Path, resume: bool) -> None:
    """Refuse to write into another run's folder. Every rank looks before rank 0 writes."""
    if not resume and (folder / EVENTS_FILE).exists():
        raise ConfigError(f"{folder} already holds a run. --resume continues it; or set another --run-dir.")
    distributed.barrier()


def _start_model(recipe: Recipe, tokenizer: Any, device: torch.device, tracker: Tracker | None) -> Path:
    """Return the folder that the policy starts from: the recipe's, or what the warm start made of it."""
    if not recipe.supervised.batches:
        return Path(recipe.model.path)
    out = Path(recipe.run_dir) / "supervised" / "model"
    report = None if tracker is None else lambda batch, metrics: tracker.log("supervised", batch, metrics)
    return train_supervised(recipe, tokenizer, device, out, report)


def _load_models(recipe: Recipe, model: ModelConfig, settings: AlgorithmSettings, device: torch.device) -> Models:
    """Load policy, critic and reference as the algorithm needs them."""
    dtype, temperature = recipe.engine.dtype, recipe.rollout.temperature
    policy = load_policy(model, dtype, temperature, entropy_grad=settings.entropy_coef > 0)
    engine = DeepSpeedEngine(policy, recipe.engine, recipe.optimizer, device, name="policy")
    critic = reference = None
    if settings.needs_critic:
        critic = DeepSpeedEngine(load_critic(model, dtype), recipe.engine, recipe.optimizer, device, name="critic")
    if settings.needs_reference:
        reference = FrozenModel(load_reference(model, dtype, temperature), recipe.engine, device)
    return Models(engine, critic, reference)


def _open_tracker(recipe: Recipe, folder: Path, checkpoint: Path | None) -> Tracker:
    """Open the run folder: the recipe as resolved, and the events, cut back to the checkpoint that is resumed."""
    mark = Mark(**read_state(checkpoint)["mark"]) if checkpoint is not None else None
    if checkpoint is None and (folder / EVENTS_FILE).exists():  # resumed before its first checkpoint: from the start
        mark = Mark(offset=0, step=0)
    tracker = Tracker(folder, recipe.tracking, total=recipe.updates, recipe=to_dict(recipe), resume=mark)
    (folder / "config.toml").write_text(to_toml(recipe), "utf-8")
    return tracker


def _due(every: int, update: int) -> bool:
    return every > 0 and update % every == 0
