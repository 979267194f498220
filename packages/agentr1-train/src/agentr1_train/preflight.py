"""Refuses a recipe that cannot run, before anything is loaded or written.

Only what the recipe alone tells: numbers out of range, choices that contradict each other, data files that are not
there. Models, environments and devices refuse themselves when they are loaded, which is also before the first write.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from agentr1_train.advantages.registry import get_estimator
from agentr1_train.config import ModelConfig, RayConfig, Recipe, RolloutConfig, SamplerConfig
from agentr1_train.endpoint_config import EndpointConfig
from agentr1_train.errors import ConfigError, MissingFileError
from agentr1_train.presets import groups_of, resolve

_Ranges = Iterator[tuple[str, float, bool, str]]
"""(field, its value, whether it is legal, what is legal)."""


def check(recipe: Recipe, *, training: bool = True) -> None:
    """Refuse what can be refused by reading the recipe.

    Args:
        recipe: one run.
        training: False for an evaluation, which reads no optimizer and no algorithm.

    Raises:
        ConfigError: names the field, what it is and what is legal.
        UnknownNameError: no such preset or estimator.
        MissingFileError: a data file is not there.
    """
    if not recipe.run_dir:
        raise ConfigError("run_dir is empty: name the folder that the run writes into.")
    for name, value, legal, wanted in [*_playing(recipe), *(_training(recipe) if training else ())]:
        if not legal:
            raise ConfigError(f"{name} = {value!r}: legal is {wanted}.")
    if recipe.evaluation.samples > 1 and recipe.evaluation.temperature == 0:
        raise ConfigError(
            f"evaluation.samples = {recipe.evaluation.samples} at temperature 0 would be one sample repeated. "
            "Set evaluation.temperature above 0, or evaluation.samples to 1."
        )
    _check_endpoint(recipe, training)
    _check_sampler(recipe.sampler, training)
    _check_ray(recipe.ray)
    if training:
        _check_branching(recipe.rollout)
        _check_algorithm(recipe)
        _check_demonstrations(recipe)


def _playing(recipe: Recipe) -> _Ranges:
    rollout, evaluation = recipe.rollout, recipe.evaluation
    counts = {
        "rollout.concurrency": rollout.concurrency,
        "rollout.max_prompt_tokens": rollout.max_prompt_tokens,
        "rollout.max_response_tokens": rollout.max_response_tokens,
        "sampler.max_batch": recipe.sampler.max_batch,
        "evaluation.samples": evaluation.samples,
        "ray.attempts": recipe.ray.attempts,
    }
    yield from _at_least(1, counts)
    limits = {
        "rollout.max_steps": rollout.max_steps,
        "rollout.patience_s": rollout.patience_s,
        "rollout.max_trajectory_tokens": rollout.max_trajectory_tokens,
        "evaluation.episodes": evaluation.episodes,
        "evaluation.temperature": evaluation.temperature,
        "engine.threads": recipe.engine.threads,
        "ray.actors": recipe.ray.actors,
        "ray.cpus_per_actor": recipe.ray.cpus_per_actor,
    }
    yield from _at_least(0, limits)
    shares = {"rollout.top_p": rollout.top_p, "evaluation.top_p": evaluation.top_p}
    for name, value in (shares | {"sampler.gpu_memory": recipe.sampler.gpu_memory}).items():
        yield name, value, 0 < value <= 1, "above 0, at most 1"
    yield "ray.start_timeout_s", recipe.ray.start_timeout_s, recipe.ray.start_timeout_s > 0, "above 0"
    yield "sampler.kv_cache_gb", recipe.sampler.kv_cache_gb, recipe.sampler.kv_cache_gb > 0, "above 0"


def _training(recipe: Recipe) -> _Ranges:
    rollout, optimizer = recipe.rollout, recipe.optimizer
    counts = {
        "updates": recipe.updates,
        "rollout.groups": 1 if rollout.groups is None else rollout.groups,
        "rollout.branch_width": rollout.branch_width,
        "rollout.group_size": rollout.group_size,
        "optimizer.epochs": optimizer.epochs,
        "optimizer.minibatches": optimizer.minibatches,
        "engine.micro_batch_tokens": recipe.engine.micro_batch_tokens,
        "supervised.batch_size": recipe.supervised.batch_size,
    }
    yield from _at_least(1, counts)
    intervals = {
        "rollout.async_level": rollout.async_level,
        "optimizer.warmup_updates": optimizer.warmup_updates,
        "optimizer.weight_decay": optimizer.weight_decay,
        "optimizer.max_grad_norm": optimizer.max_grad_norm,
        "supervised.batches": recipe.supervised.batches,
        "evaluation.every": recipe.evaluation.every,
        "tracking.rollouts_every": recipe.tracking.rollouts_every,
        "checkpoint.every": recipe.checkpoint.every,
        "checkpoint.keep": recipe.checkpoint.keep,
    }
    yield from _at_least(0, intervals)
    positive = {
        "rollout.temperature": rollout.temperature,  # training samples, so it cannot be greedy
        "optimizer.eps": optimizer.eps,
        "supervised.lr": recipe.supervised.lr,
    }
    yield from ((name, value, value > 0, "above 0") for name, value in positive.items())
    yield from (("optimizer.betas", beta, 0 <= beta < 1, "0 or above, below 1") for beta in optimizer.betas)
    for name in ("max_error_fraction", "branch_probability"):
        share = getattr(rollout, name)
        yield f"rollout.{name}", share, 0 <= share <= 1, "0 to 1"
    yield "rollout.branch_surprise", rollout.branch_surprise, rollout.branch_surprise >= 0, "0 or above"


def _at_least(least: int, values: Mapping[str, float]) -> _Ranges:
    return ((name, value, value >= least, f"{least} or above") for name, value in values.items())


def _check_endpoint(recipe: Recipe, training: bool) -> None:
    """Refuse to train on an endpoint's text, and settings of an endpoint that nobody asks."""
    if recipe.sampler.name == "openai":
        if training:
            raise ConfigError(
                "sampler.name = 'openai' only evaluates (agentr1-train evaluate): an endpoint gives no token ids to "
                "train on. Train with sampler.name = 'hf'."
            )
    elif recipe.endpoint != EndpointConfig():
        raise ConfigError(
            f"the section endpoint would be without effect: sampler.name is {recipe.sampler.name!r}. Remove it, or set "
            "sampler.name = 'openai'."
        )


def _check_ray(ray: RayConfig) -> None:
    if ray.actors == 0:
        for name in ("address", "cpus_per_actor", "start_timeout_s", "attempts"):
            if getattr(ray, name) != getattr(RayConfig, name):
                raise ConfigError(
                    f"ray.{name} = {getattr(ray, name)!r} would be without effect: ray.actors is 0, so episodes are "
                    "played in the rank. Remove it, or set the number of actors."
                )


def _check_sampler(sampler: SamplerConfig, training: bool) -> None:
    """Refuse settings that the named sampler does not read, and an adapter that the trainer would not know of."""
    readers = {"gpu_memory": ("vllm", "vllm_server"), "kv_cache_gb": ("vllm", "vllm_server")}
    readers |= {"lora": ("vllm", "vllm_server"), "server_url": ("vllm_server",), "server_gpus": ("vllm_server",)}
    for name, samplers in readers.items():
        value = getattr(sampler, name)
        if value != getattr(SamplerConfig, name) and sampler.name not in samplers:
            raise ConfigError(
                f"sampler.{name} = {value!r} would be without effect: sampler.name is {sampler.name!r}, and only "
                f"{' and '.join(samplers)} read it."
            )
    if sampler.server_url:
        for name in ("gpu_memory", "kv_cache_gb", "lora", "server_gpus"):
            if getattr(sampler, name) != getattr(SamplerConfig, name):
                raise ConfigError(
                    f"sampler.{name} = {getattr(sampler, name)!r} would be without effect on a running server "
                    f"({sampler.server_url}): set it where the server is started."
                )
    if training and sampler.lora:
        raise ConfigError(
            f"sampler.lora = {sampler.lora!r}: the trainer trains all weights and would not know of the adapter. "
            "Evaluate with it, or merge it into model.path first."
        )


def _check_branching(rollout: RolloutConfig) -> None:
    """Refuse settings of branching that nothing reads, and branches that could never be."""
    if rollout.branch_width == 1:
        for name in ("branch_limit", "branch_probability", "branch_surprise"):
            if getattr(rollout, name) != getattr(RolloutConfig, name):
                raise ConfigError(
                    f"rollout.{name} = {getattr(rollout, name)!r} would be without effect: rollout.branch_width is 1, "
                    "so no episode branches. Remove it, or set the width."
                )
        return
    if rollout.branch_limit < rollout.branch_width:
        raise ConfigError(
            f"rollout.branch_limit = {rollout.branch_limit}: legal is rollout.branch_width "
            f"({rollout.branch_width}) or above."
        )
    if rollout.max_steps == 1 or rollout.branch_probability == rollout.branch_surprise == 0:
        raise ConfigError(
            f"rollout.branch_width = {rollout.branch_width} would be without effect: an episode branches after its "
            "first step, with rollout.branch_probability and rollout.branch_surprise not both 0."
        )


def _check_algorithm(recipe: Recipe) -> None:
    settings = resolve(recipe.algorithm, recipe.optimizer)
    groups_of(recipe.rollout, settings)
    estimator = get_estimator(settings.estimator)
    if recipe.rollout.group_size == 1 and (estimator.by_group or settings.permute_returns == "group"):
        raise ConfigError(
            f"rollout.group_size = 1: estimator {settings.estimator!r} compares trajectories of one group, "
            "so at least 2 are needed."
        )
    if recipe.rollout.async_level and settings.mismatch == "none":
        raise ConfigError(
            f"algorithm.mismatch = 'none' with rollout.async_level = {recipe.rollout.async_level}: responses of older "
            "weights would be trained on as if the present ones had sampled them. Legal is 'truncate' or 'mask', or "
            "rollout.async_level = 0."
        )
    _check_adapter(recipe.model)
    critic = recipe.model.critic_path
    if critic and not settings.needs_critic:
        raise ConfigError(
            f"model.critic_path = {critic!r} would be without effect: estimator "
            f"{settings.estimator!r} has no critic. Remove it, or take an estimator with one."
        )
    if critic.startswith((".", "/", "~")) and not (Path(critic) / "config.json").is_file():
        raise MissingFileError(
            f"model.critic_path = {critic!r}: no model folder there. It needs config.json and weights."
        )


def _check_adapter(model: ModelConfig) -> None:
    if model.lora_rank < 0:
        raise ConfigError(f"model.lora_rank = {model.lora_rank}: legal is 0 or above.")
    if model.lora_alpha is not None and model.lora_alpha <= 0:
        raise ConfigError(f"model.lora_alpha = {model.lora_alpha}: legal is above 0.")
    for name in ("lora_alpha", "lora_targets"):
        if not model.lora_rank and getattr(model, name):
            raise ConfigError(
                f"model.{name} = {getattr(model, name)!r} would be without effect: model.lora_rank is 0. "
                "Set a rank, or remove it."
            )


def _check_demonstrations(recipe: Recipe) -> None:
    named = recipe.supervised.demonstrations
    if named and not recipe.supervised.batches:
        raise ConfigError(
            f"supervised.demonstrations = {named!r} would be without effect: supervised.batches is 0. "
            "Set the number of batches, or remove it."
        )
    if named and not Path(named).is_file():
        raise MissingFileError(
            f"supervised.demonstrations = {named!r}: no such file. A run writes such files under rollouts/."
        )
