"""The recipe: frozen dataclasses, one for each section of the TOML file.

``load_recipe`` reads a file and refuses unknown keys; ``to_toml`` writes the resolved recipe back. Every field acts
or is refused; the command line overrides any of them (``--rollout.group-size 16``). Presets live in ``presets.py``.
"""

import dataclasses
import tomllib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tomli_w

from agentr1_train.algorithm_config import AlgorithmConfig
from agentr1_train.endpoint_config import EndpointConfig
from agentr1_train.errors import ConfigError, MissingFileError, did_you_mean


@dataclass(frozen=True)
class EnvConfig:
    """Which environment, and how it is made."""

    id: str = ""
    """Gymnasium id; ``module:id`` imports the module first."""
    imports: tuple[str, ...] = ()
    """Modules to import before ``gymnasium.make``, so that they register their ids."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``gymnasium.make``."""
    eval_kwargs: dict[str, Any] = field(default_factory=dict)
    """Laid over ``kwargs`` for evaluation (another split). What is for training only must be turned off here."""
    reset_timeout_s: float = 60.0
    """Seconds ``reset`` may take; past it the trajectory ends as ``error``."""
    step_timeout_s: float = 60.0
    """Seconds ``step`` may take; past it the trajectory ends as ``error``."""


@dataclass(frozen=True)
class ModelConfig:
    """The policy, and the critic that may stand beside it."""

    path: str = ""
    """Local folder or hub name, as ``from_pretrained`` takes it; tokenizer and chat template come from there."""
    critic_path: str = ""
    """Backbone of the critic; empty: the policy's."""
    chat_template: str = ""
    """File with a Jinja chat template that replaces the tokenizer's."""
    attention: str = "sdpa"
    """transformers' ``attn_implementation``."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""
    lora_rank: int = 0
    """Rank of low-rank adapters, which alone are then trained, in policy and critic; 0: the whole model is trained.
    Needs the extra ``agentr1-train[lora]``. Sampler and export get merged weights."""
    lora_alpha: float | None = None
    """The adapters are scaled by this over the rank; not given: twice the rank."""
    lora_targets: tuple[str, ...] = ()
    """Names of the linear layers that get one, such as ``q_proj``; empty: all but the output layer."""


@dataclass(frozen=True)
class RolloutConfig:
    """How episodes are collected."""

    groups: int | None = None
    """P, the number of seeds an update, over all ranks; not given: the preset's batch over ``group_size``, or 8."""
    group_size: int = 8
    """G, the number of trajectories of each seed."""
    context: Literal["append", "replace"] = "append"
    """What a ``str`` observation is: what is new (append), or the whole state (replace)."""
    max_steps: int = 0
    """Model calls an episode may make; 0 leaves it to the environment."""
    max_prompt_tokens: int = 2048
    """A longer prompt ends the trajectory as truncated, ``prompt_too_long``; nothing is cut silently."""
    max_response_tokens: int = 256
    """Cap on each step's response."""
    max_trajectory_tokens: int = 0
    """Cap on the responses of one episode together; 0: none."""
    temperature: float = 1.0
    """Of sampling, and of the log-probabilities in the loss."""
    top_p: float = 1.0
    """Sample from the likeliest tokens that hold this much probability; 1: from all."""
    concurrency: int = 64
    """Episodes in flight on one rank."""
    patience_s: float = 0.25
    """Seconds sampling waits for slow environments, until one is late. Where none is, a run repeats bit for bit."""
    async_level: int = 0
    """0: play, then update. n: play while updates run, with weights at most n versions behind those of the update."""
    branch_width: int = 1
    """Responses sampled where an episode branches, after an answer of the environment (ARPO); 1: none branches."""
    branch_limit: int = 4
    """Trajectories that one episode may become by branching."""
    branch_probability: float = 0.5
    """Chance that an episode branches at an answer of the environment."""
    branch_surprise: float = 0.2
    """Added to that chance for each nat by which the next response begins less sure of itself than the first did."""
    on_error: Literal["drop", "truncate"] = "drop"
    """A trajectory that ended as ``error``: left out of the batch, or trained as truncated. Counted either way."""
    max_error_fraction: float = 0.5
    """More failed trajectories than this in one update stop the run with the commonest reason."""


@dataclass(frozen=True)
class RayConfig:
    """Episodes played by actors on a Ray cluster; sampling stays in the rank. Needs ``agentr1-train[ray]``."""

    actors: int = 0
    """Actors that play for one rank, and as many for its evaluations; 0: no Ray, episodes are played in the rank."""
    address: str = ""
    """``HOST:PORT`` of the cluster, as ``ray start --head`` prints it; empty: the variable RAY_ADDRESS."""
    cpus_per_actor: float = 1.0
    """CPUs of the cluster that each actor reserves; 0.5: two share one."""
    start_timeout_s: float = 120.0
    """Seconds within which an actor must stand, its first environment made, when none does."""
    attempts: int = 4
    """Times an episode is begun while its actors die; after the last it ends as ``error``."""


@dataclass(frozen=True)
class SamplerConfig:
    """What generates the responses."""

    name: str = "hf"
    """``hf`` (transformers), ``vllm`` (in the rank), ``vllm_server`` (of its own), ``openai`` (section ``endpoint``;
    evaluation only); ``scripted`` is for tests."""
    dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision of the sampler's weights."""
    max_batch: int = 64
    """Prompts sampled together."""
    script: str = ""
    """For ``scripted``: a ``module:function`` that writes the responses."""
    gpu_memory: float = 0.4
    """vLLM on a GPU: the share of its memory for weights, cache and activations together."""
    kv_cache_gb: float = 1.0
    """vLLM on a CPU: GiB for keys and values."""
    lora: str = ""
    """vLLM, evaluation only: folder of a LoRA adapter in PEFT's format, sampled with on top of ``model.path``."""
    server_url: str = ""
    """``vllm_server``: a running server to join; empty: the run starts one and ends it."""
    server_gpus: tuple[int, ...] = ()
    """``vllm_server`` started on GPUs: their indices, none of them a rank's; the model is split over all of them."""


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW and the shape of an update."""

    lr: float | None = None
    """``None`` takes the preset's (1e-6 where it is silent)."""
    critic_lr: float | None = None
    """``None`` takes the preset's (the actor's where it is silent)."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay rates."""
    eps: float = 1e-8
    """AdamW's epsilon."""
    weight_decay: float = 0.0
    """AdamW's decoupled weight decay."""
    max_grad_norm: float = 1.0
    """Bound of the gradient's norm; 0: none."""
    warmup_updates: int = 0
    """Updates over which the learning rate grows linearly from lr / n."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """From the end of warm-up down to 0 at the last update."""
    epochs: int = 1
    """Passes over each rollout."""
    minibatches: int = 1
    """Optimizer steps a pass; trajectories are dealt over them by global index."""


@dataclass(frozen=True)
class EngineConfig:
    """DeepSpeed."""

    zero_stage: Literal[0, 1, 2, 3] = 0
    """What is sharded over ranks: nothing, optimizer states, gradients too, weights too."""
    dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision of weights and activations in training. ``fp16`` scales the loss dynamically: a step that overflows is
    left out and counted. A precision that the device lacks is refused."""
    offload_optimizer: bool = False
    """Keep the optimizer's states, and its copy of the weights, in the host's memory (ZeRO 1 to 3, on a GPU)."""
    device: str = "auto"
    """``auto``, ``cpu`` or ``cuda``; one that is not there is refused."""
    packing: Literal["tree", "merged", "rows"] = "tree"
    """``tree``: what steps have in common from their first token on is computed once. ``merged``: only what the steps
    of one trajectory have in common. ``rows``: every step repeats its history. The same function and gradient."""
    micro_batch_tokens: int = 4096
    """Tokens a micro-batch may hold, padding included; a longer row stands alone."""
    threads: int = 0
    """Torch threads a rank; 0: the cores divided by the ranks on this host."""


@dataclass(frozen=True)
class SupervisedConfig:
    """The warm start from demonstrations, before the first update."""

    batches: int = 0
    """0: none."""
    batch_size: int = 8
    """Demonstrated episodes in one batch, over all ranks."""
    lr: float = 1e-4
    """Learning rate of the warm start."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """From the first batch down to 0 at the end of the last."""
    demonstrations: str = ""
    """A parquet of demonstrations; empty: the environment's own ``demonstration()``."""
    failures: bool = False
    """Imitate demonstrations that end without success as well."""
    transcript: float = 0.0
    """Weight of the loss over all tokens of the transcripts, the environment's too, beside the loss over responses."""


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation on ``env.eval_kwargs``."""

    every: int = 0
    """Updates between evaluations; 0: only before the first and after the last update."""
    episodes: int = 0
    """Tasks; 0: no evaluation."""
    samples: int = 1
    """Responses a task, for pass@k."""
    temperature: float = 0.0
    """0: greedy."""
    top_p: float = 1.0
    """As in the rollout."""


@dataclass(frozen=True)
class TrackingConfig:
    """Where metrics go beside ``events.jsonl``."""

    tensorboard: bool = True
    """Write ``RUN_DIR/tensorboard``."""
    wandb_project: str = ""
    """Weights & Biases project; empty: off. Needs the extra ``agentr1-train[wandb]``."""
    rollouts_every: int = 1
    """Updates between rollout files in parquet; 0: never."""
    progress: bool = True
    """Progress bar on rank 0."""


@dataclass(frozen=True)
class CheckpointConfig:
    """Checkpoints and export."""

    every: int = 0
    """Updates between checkpoints; 0: only the last."""
    keep: int = 2
    """Newest checkpoints kept; 0: all."""
    export: bool = True
    """Write the final policy as a Hugging Face folder under ``model/``."""


@dataclass(frozen=True)
class Recipe:
    """One run."""

    run_dir: str = ""
    """Folder of everything the run writes."""
    seed: int = 0
    """Of tasks and sampling; with it a run repeats."""
    updates: int = 100
    """Rollouts, each followed by its optimizer steps."""
    env: EnvConfig = EnvConfig()
    model: ModelConfig = ModelConfig()
    rollout: RolloutConfig = RolloutConfig()
    ray: RayConfig = RayConfig()
    sampler: SamplerConfig = SamplerConfig()
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    optimizer: OptimizerConfig = OptimizerConfig()
    engine: EngineConfig = EngineConfig()
    supervised: SupervisedConfig = SupervisedConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    tracking: TrackingConfig = TrackingConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()


def load_recipe(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
        MissingFileError: there is no such file.
        ConfigError: not TOML, an unknown key, or a value of the wrong type; the message names file and key.
    """
    if not path.is_file():
        raise MissingFileError(f"no recipe at {path}. Recipes lie in packages/agentr1-train/recipes/.")
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return _build(Recipe, table, str(path), "")


def recipe_from_dict(table: dict[str, Any], source: str = "recipe") -> Recipe:
    """Build a recipe from nested tables, with the checks of ``load_recipe``."""
    return _build(Recipe, table, source, "")


def to_dict(recipe: Recipe) -> dict[str, Any]:
    """Return nested tables without the ``None`` values, which TOML cannot say."""
    return _plain(dataclasses.asdict(recipe))


def to_toml(recipe: Recipe) -> str:
    """Return the recipe as TOML; reading it back gives an equal recipe."""
    return tomli_w.dumps(to_dict(recipe))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _build(cls: type, table: dict[str, Any], source: str, prefix: str) -> Any:
    hints = typing.get_type_hints(cls)
    names = [item.name for item in dataclasses.fields(cls)]
    values = {}
    for key, value in table.items():
        if key not in names:
            where = f"[{prefix.rstrip('.')}] " if prefix else ""
            raise ConfigError(
                f"{source}: {where}unknown key {key!r}{did_you_mean(key, names)} Legal: {', '.join(names)}."
            )
        hint = hints[key]
        if dataclasses.is_dataclass(hint):
            if not isinstance(value, dict):
                raise ConfigError(f"{source}: {prefix}{key} is a section, not the value {value!r}.")
            values[key] = _build(typing.cast(type, hint), value, source, f"{prefix}{key}.")
        else:
            values[key] = _convert(value, hint, source, prefix + key)
    return cls(**values)


def _convert(value: Any, hint: Any, source: str, name: str) -> Any:
    """Return ``value`` as the annotated type, or say what was given and what is legal."""
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        (hint,) = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return _convert(value, hint, source, name)
    if origin is Literal:
        legal = typing.get_args(hint)
        if any(value == item and type(value) is type(item) for item in legal):
            return value
        raise ConfigError(f"{source}: {name} = {value!r}: legal values are {', '.join(map(repr, legal))}.")
    if origin is tuple:
        if isinstance(value, list | tuple):
            args = typing.get_args(hint)
            if args[-1] is not Ellipsis and len(value) != len(args):
                raise ConfigError(f"{source}: {name} = {value!r}: {len(args)} values are needed.")
            return tuple(_convert(item, args[0], source, name) for item in value)
        raise ConfigError(f"{source}: {name} = {value!r}: a list is needed.")
    if origin is dict:
        if isinstance(value, dict):
            return dict(value)
        raise ConfigError(f"{source}: {name} = {value!r}: a table is needed.")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"{source}: {name} = {value!r}: {hint.__name__} is needed.")
