"""Every published name as four independent choices: estimator, ratio level, objective, aggregation; plus where KL goes.

``resolve`` lays what the recipe says over the preset it names and returns settings without a gap. A setting that would
be without effect, or that contradicts another, is refused: nothing in a recipe is read and ignored.
What the choices mean is in ``advantages/`` and ``losses.py``; their sources are in docs/paper_index.md.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal

from agentr1_train.advantages.layered import COHERENCE, PART_WEIGHTS
from agentr1_train.advantages.registry import PART_ESTIMATORS, get_estimator
from agentr1_train.algorithm_config import AlgorithmConfig
from agentr1_train.config import OptimizerConfig, RolloutConfig
from agentr1_train.errors import ConfigError, UnknownNameError

Ratio = Literal["token", "step", "trajectory"]
Objective = Literal["clip", "cispo", "reinforce"]
Aggregation = Literal["token_mean", "step_mean", "trajectory_mean", "token_sum_norm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSettings:
    """An algorithm with every choice made. The defaults are those of a preset that is silent."""

    estimator: str
    ratio: Ratio
    objective: Objective
    aggregation: Aggregation
    needs_critic: bool
    needs_reference: bool
    """True when the frozen start of the run is used: for KL, in the reward or in the loss, or for coherence."""
    by_token: bool = False
    """True when the estimator tells the tokens of a step apart, so that the critic is read at each of them."""
    needs_greedy: bool = False
    """True when the estimator needs a greedy rollout of each seed."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float = 0.0
    """0: off."""
    norm_length: int = 1024
    gamma: float = 1.0
    lam: float = 0.95
    bootstrap_truncated: bool = True
    gamma_step: float = 0.95
    lam_step: float = 1.0
    step_weight: float = 1.0
    divide_by_std: bool = True
    layer_weights: Mapping[str, float] = field(default_factory=lambda: dict(PART_WEIGHTS))
    layer_estimator: str = "reinforce"
    kl: Literal["none", "reward", "loss"] = "none"
    kl_form: Literal["k1", "k2", "k3"] = "k3"
    """Form in the loss; in the reward it is always k1."""
    kl_coef: float = 0.001
    """The first value when ``kl_target`` is set: the trainer adapts it with ``losses.adapt_kl_coef``."""
    kl_target: float = 0.0
    """0: the coefficient is fixed."""
    kl_stop: float = 0.0
    """0: off."""
    entropy_coef: float = 0.0
    value_coef: float = 1.0
    value_clip: float = 0.5
    """0: off."""
    mismatch: Literal["truncate", "mask", "none"] = "truncate"
    mismatch_cap: float = 2.0
    mismatch_low: float = 0.5
    mismatch_high: float = 5.0
    overlong_share: float = 0.0
    """0: off."""
    flat_groups: Literal["keep", "drop", "resample"] = "keep"
    resample_rounds: int = 4
    permute_returns: Literal["none", "batch", "group"] = "none"
    lr: float = 1e-6
    critic_lr: float = 1e-6
    batch: int = 64
    """Trajectories an update, where the recipe does not say ``rollout.groups``."""


def _preset(
    estimator: str, ratio: Ratio, objective: Objective, aggregation: Aggregation, **others: Any
) -> Mapping[str, Any]:
    choices = {"estimator": estimator, "ratio": ratio, "objective": objective, "aggregation": aggregation}
    return MappingProxyType(choices | others)


_STEPPO = _preset("step_gae", "step", "clip", "trajectory_mean", clip_low=3e-4, clip_high=4e-4, dual_clip=10.0)

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "ppo": _preset(
            *("step_gae", "token", "clip", "token_mean"),
            lr=1e-5,
            entropy_coef=0.01,
            value_coef=0.5,
            kl_stop=0.01,
            batch=16,
        ),
        "steppo": _STEPPO,
        "pspo": _STEPPO,
        "turn_ppo": _preset("step_gae", "step", "clip", "step_mean", gamma=0.99, lam=0.9, critic_lr_factor=10.0),
        "grpo": _preset("grpo", "token", "clip", "step_mean", kl="loss", kl_form="k3", kl_coef=0.001),
        "dapo": _preset(
            "grpo", "token", "clip", "token_mean", clip_high=0.28, flat_groups="resample", overlong_share=0.2
        ),
        "dr_grpo": _preset("dr_grpo", "token", "clip", "token_sum_norm"),
        "gspo": _preset("grpo", "trajectory", "clip", "trajectory_mean", clip_low=3e-4, clip_high=4e-4),
        "cispo": _preset("grpo", "token", "cispo", "token_mean"),
        "rloo": _preset("rloo", "token", "reinforce", "token_mean", kl="reward"),
        "reinforce": _preset("reinforce", "token", "reinforce", "token_mean", kl="reward"),
        "reinforce_pp": _preset("reinforce_pp", "token", "clip", "token_mean", kl="reward"),
        "remax": _preset("remax", "token", "reinforce", "token_mean"),
        "gigpo": _preset("gigpo", "token", "clip", "step_mean", kl="loss", kl_form="k3", kl_coef=0.001),
        "layered": _preset("layered", "token", "clip", "token_mean"),
        "agent_r1": _preset("step_gae", "token", "clip", "token_mean", dual_clip=3.0, bootstrap_truncated=False),
    }
)
"""What each preset sets; the rest are the defaults of ``AlgorithmSettings``.

``critic_lr_factor`` times ``lr`` is the critic's learning rate, unless the recipe gives one.
"""


CHOICES = ("estimator", "ratio", "objective", "aggregation")


def preset_rows() -> Iterator[tuple[str, ...]]:
    """Yield for each preset its name, its four choices (``-``: no ratio, nothing is clipped), and what else it sets."""
    for name, values in PRESETS.items():
        others = ", ".join(f"{key} = {value}" for key, value in values.items() if key not in CHOICES)
        choices = ("-" if key == "ratio" and values["objective"] == "reinforce" else values[key] for key in CHOICES)
        yield name, *choices, others


_IS_OFF = {"dual_clip": 0, "kl_target": 0, "kl_stop": 0, "overlong_share": 0, "flat_groups": "keep"}
"""Settings that may be given where they do not act, as long as they say so."""

ESTIMATOR_SETTINGS = (
    *("gamma", "lam", "bootstrap_truncated", "gamma_step", "lam_step"),
    *("step_weight", "divide_by_std", "layer_weights", "layer_estimator"),
)
"""Settings that act only where the estimator reads them."""


def resolve(algorithm: AlgorithmConfig, optimizer: OptimizerConfig) -> AlgorithmSettings:
    """Lay the recipe over its preset.

    Raises:
        UnknownNameError: no such preset or estimator.
        ConfigError: a value out of range, one that contradicts another, or one that would be without effect.
    """
    if algorithm.preset not in PRESETS:
        raise UnknownNameError("preset", algorithm.preset, PRESETS)
    given = _given(algorithm, optimizer)
    values = dict(PRESETS[algorithm.preset]) | given
    estimator = get_estimator(values["estimator"])
    _drop_unused(values, given)
    values.setdefault("lr", 1e-6)
    factor = values.pop("critic_lr_factor", 1.0)
    values.setdefault("critic_lr", factor * values["lr"])
    coheres = estimator.reads_parts and values.get("layer_weights", PART_WEIGHTS).get(COHERENCE, 0) != 0
    settings = AlgorithmSettings(
        needs_critic=estimator.needs_critic,
        needs_reference=values.get("kl", "none") != "none" or coheres,
        by_token=estimator.by_token,
        needs_greedy=estimator.needs_greedy,
        **values,
    )
    _check_layers(settings)
    _check_effect(settings, given, optimizer)
    _check_ranges(settings)
    return settings


def groups_of(rollout: RolloutConfig, settings: AlgorithmSettings) -> int:
    """Return P, the number of seeds an update: the recipe's, or the preset's batch over ``rollout.group_size``.

    Raises:
        ConfigError: the batch is no multiple of the group size.
    """
    if rollout.groups is not None:
        return rollout.groups
    groups, rest = divmod(settings.batch, rollout.group_size)
    if rest or not groups:
        raise ConfigError(
            f"rollout.group_size = {rollout.group_size}: the preset's batch of {settings.batch} trajectories is no "
            "multiple of it. Set rollout.groups."
        )
    return groups


def _given(algorithm: AlgorithmConfig, optimizer: OptimizerConfig) -> dict[str, Any]:
    """Return what the recipe says beyond the defaults, by the names of ``AlgorithmSettings``."""
    given = {
        item.name: getattr(algorithm, item.name)
        for item in fields(AlgorithmConfig)
        if item.name != "preset" and getattr(algorithm, item.name) not in (None, item.default)
    }
    rates = {"lr": optimizer.lr, "critic_lr": optimizer.critic_lr}
    return given | {name: rate for name, rate in rates.items() if rate is not None}


def _drop_unused(values: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Forget what the preset sets for a choice that the recipe replaced, so that only the recipe can be at fault."""
    replaced = {
        "dual_clip": values["objective"] != "clip",
        "kl_form": values.get("kl") != "loss",
        "kl_coef": values.get("kl", "none") == "none",
        "flat_groups": not get_estimator(values["estimator"]).by_group,
        "overlong_share": get_estimator(values["estimator"]).reads_parts,
    }
    unread = set(ESTIMATOR_SETTINGS) - set(get_estimator(values["estimator"]).reads)
    replaced |= dict.fromkeys(unread, True)
    for name, unused in replaced.items():
        if unused and name not in given:
            values.pop(name, None)


def _check_layers(settings: AlgorithmSettings) -> None:
    """Refuse streams that say nothing, and an estimator that needs more than a stream of rewards."""
    if settings.layer_estimator not in PART_ESTIMATORS:
        raise UnknownNameError("estimator of a reward stream", settings.layer_estimator, PART_ESTIMATORS)
    for name, weight in settings.layer_weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight) or weight < 0:
            raise ConfigError(f"algorithm.layer_weights.{name} = {weight!r}: legal is a number, 0 or above.")
    if not any(settings.layer_weights.values()):
        raise ConfigError("algorithm.layer_weights gives no stream a weight above 0, so nothing would be learned.")


def _check_effect(settings: AlgorithmSettings, given: Mapping[str, Any], optimizer: OptimizerConfig) -> None:
    """Refuse what the recipe sets and nothing would read."""
    for names, acts, why in _conditions(settings, optimizer):
        for name in names:
            if acts or name not in given or (name in _IS_OFF and given[name] == _IS_OFF[name]):
                continue
            raise ConfigError(
                f"{_section(name)}.{name} = {given[name]!r} would be without effect: {why}. Remove it, or change the "
                "choice it depends on."
            )
    if settings.kl != "none" and settings.kl_coef == 0:
        raise ConfigError(f"algorithm.kl = {settings.kl!r} with algorithm.kl_coef = 0 does nothing. Set kl = 'none'.")
    if settings.kl == "reward" and get_estimator(settings.estimator).reads_parts:
        raise ConfigError(
            f"algorithm.kl = 'reward' would be without effect: estimator {settings.estimator!r} reads reward streams, "
            "not the reward. Set kl = 'loss' or 'none'."
        )


def _conditions(settings: AlgorithmSettings, optimizer: OptimizerConfig) -> Iterator[tuple[tuple[str, ...], bool, str]]:
    """Yield (settings, whether they act, why they would not)."""
    estimator = get_estimator(settings.estimator)
    named = f"estimator {settings.estimator!r}"
    for name in ESTIMATOR_SETTINGS:
        yield (name,), name in estimator.reads, f"{named} does not read it"
    yield ("value_coef", "value_clip", "critic_lr"), estimator.needs_critic, f"{named} has no critic"
    yield ("flat_groups",), estimator.by_group, f"{named} does not compare within a group"
    yield ("resample_rounds",), settings.flat_groups == "resample", f"flat_groups is {settings.flat_groups!r}"
    if estimator.reads_parts:
        reads = PART_ESTIMATORS[settings.layer_estimator].reads
        streams = f"layer_estimator {settings.layer_estimator!r} does not read it"
        yield ("gamma",), "gamma" in reads, streams
        yield ("step_weight", "divide_by_std"), "step_weight" in reads, streams
        yield ("overlong_share",), False, f"{named} reads reward streams, not the reward"

    objective = f"objective is {settings.objective!r}"
    yield ("ratio", "clip_low", "clip_high"), settings.objective != "reinforce", f"{objective}, which has no ratio"
    yield ("dual_clip",), settings.objective == "clip", f"{objective}, not 'clip'"
    yield ("norm_length",), settings.aggregation == "token_sum_norm", f"aggregation is {settings.aggregation!r}"

    kl = f"kl is {settings.kl!r}"
    yield ("kl_coef", "kl_target"), settings.kl != "none", kl
    yield ("kl_form",), settings.kl == "loss", f"{kl}; the form is a choice in the loss only"
    passes = optimizer.epochs * optimizer.minibatches
    yield ("kl_stop",), passes > 1, "epochs x minibatches is 1, so there is no later optimizer step to stop"

    mismatch = f"mismatch is {settings.mismatch!r}"
    yield ("mismatch_cap",), settings.mismatch == "truncate", mismatch
    yield ("mismatch_low", "mismatch_high"), settings.mismatch == "mask", mismatch


def _section(name: str) -> str:
    return "optimizer" if name in ("lr", "critic_lr") else "algorithm"


def _check_ranges(settings: AlgorithmSettings) -> None:
    """Refuse values outside their range."""
    # (setting, legal, what is legal)
    ranges = [
        ("gamma", 0 <= settings.gamma <= 1, "0 to 1"),
        ("lam", 0 <= settings.lam <= 1, "0 to 1"),
        ("gamma_step", 0 <= settings.gamma_step <= 1, "0 to 1"),
        ("lam_step", 0 <= settings.lam_step <= 1, "0 to 1"),
        ("step_weight", settings.step_weight >= 0, "0 or above"),
        ("overlong_share", 0 <= settings.overlong_share <= 1, "0 (off) to 1"),
        ("resample_rounds", settings.resample_rounds >= 1, "at least 1"),
        ("clip_low", 0 < settings.clip_low <= 1, "above 0, at most 1"),
        ("clip_high", settings.clip_high > 0, "above 0"),
        ("dual_clip", settings.dual_clip == 0 or settings.dual_clip > 1, "0 (off) or above 1"),
        ("norm_length", settings.norm_length >= 1, "at least 1"),
        ("kl_coef", settings.kl_coef >= 0, "0 or above"),
        ("kl_target", settings.kl_target >= 0, "0 (fixed) or above"),
        ("kl_stop", settings.kl_stop >= 0, "0 (off) or above"),
        ("entropy_coef", settings.entropy_coef >= 0, "0 or above"),
        ("value_coef", settings.value_coef > 0, "above 0"),
        ("value_clip", settings.value_clip >= 0, "0 (off) or above"),
        ("mismatch_cap", settings.mismatch_cap > 0, "above 0"),
        ("mismatch_low", 0 <= settings.mismatch_low <= 1, "0 to 1"),
        ("mismatch_high", settings.mismatch_high >= 1, "at least 1"),
        ("lr", settings.lr > 0, "above 0"),
        ("critic_lr", settings.critic_lr > 0, "above 0"),
    ]
    for name, legal, wanted in ranges:
        value = getattr(settings, name)
        if not legal or not math.isfinite(value):
            raise ConfigError(f"{_section(name)}.{name} = {value!r}: legal is {wanted}.")
