"""Presets resolve to what is published, and no setting is read and ignored."""

from dataclasses import fields
from typing import Any

import pytest
from agentr1_train.advantages.registry import ESTIMATORS
from agentr1_train.algorithm_config import AlgorithmConfig
from agentr1_train.config import OptimizerConfig, RolloutConfig
from agentr1_train.errors import ConfigError, UnknownNameError
from agentr1_train.presets import PRESETS, AlgorithmSettings, groups_of, resolve

TWO_EPOCHS = OptimizerConfig(epochs=2)


def settings(preset: str, optimizer: OptimizerConfig | None = None, **given: Any) -> AlgorithmSettings:
    return resolve(AlgorithmConfig(preset=preset, **given), optimizer or OptimizerConfig())


@pytest.mark.parametrize(
    ("preset", "estimator", "ratio", "objective", "aggregation", "low", "high", "dual", "kl"),
    [
        ("ppo", "step_gae", "token", "clip", "token_mean", 0.2, 0.2, 0.0, "none"),
        ("steppo", "step_gae", "step", "clip", "trajectory_mean", 3e-4, 4e-4, 10.0, "none"),
        ("turn_ppo", "step_gae", "step", "clip", "step_mean", 0.2, 0.2, 0.0, "none"),
        ("grpo", "grpo", "token", "clip", "step_mean", 0.2, 0.2, 0.0, "loss"),
        ("gspo", "grpo", "trajectory", "clip", "trajectory_mean", 3e-4, 4e-4, 0.0, "none"),
        ("cispo", "grpo", "token", "cispo", "token_mean", 0.2, 0.2, 0.0, "none"),
        ("rloo", "rloo", "token", "reinforce", "token_mean", 0.2, 0.2, 0.0, "reward"),
        ("reinforce", "reinforce", "token", "reinforce", "token_mean", 0.2, 0.2, 0.0, "reward"),
        ("dr_grpo", "dr_grpo", "token", "clip", "token_sum_norm", 0.2, 0.2, 0.0, "none"),
        ("dapo", "grpo", "token", "clip", "token_mean", 0.2, 0.28, 0.0, "none"),
        ("remax", "remax", "token", "reinforce", "token_mean", 0.2, 0.2, 0.0, "none"),
        ("layered", "layered", "token", "clip", "token_mean", 0.2, 0.2, 0.0, "none"),
        ("pspo", "step_gae", "step", "clip", "trajectory_mean", 3e-4, 4e-4, 10.0, "none"),
        ("reinforce_pp", "reinforce_pp", "token", "clip", "token_mean", 0.2, 0.2, 0.0, "reward"),
        ("gigpo", "gigpo", "token", "clip", "step_mean", 0.2, 0.2, 0.0, "loss"),
        ("agent_r1", "step_gae", "token", "clip", "token_mean", 0.2, 0.2, 3.0, "none"),
    ],
)
def test_presets_are_the_published_choices(preset, estimator, ratio, objective, aggregation, low, high, dual, kl):
    found = settings(preset)
    assert (found.estimator, found.ratio, found.objective, found.aggregation) == (
        estimator,
        ratio,
        objective,
        aggregation,
    )
    assert (found.clip_low, found.clip_high, found.dual_clip, found.kl) == (low, high, dual, kl)
    assert found.needs_critic == (estimator == "step_gae")
    assert found.needs_reference == (kl != "none" or preset == "layered")
    assert found.needs_greedy == (preset == "remax")
    assert not found.by_token


def test_the_presets_are_fifteen_and_one_alias() -> None:
    assert len(PRESETS) == 16
    assert PRESETS["pspo"] == PRESETS["steppo"]


def test_what_single_presets_add():
    ppo = settings("ppo")
    assert (ppo.lr, ppo.critic_lr, ppo.entropy_coef, ppo.value_coef, ppo.kl_stop) == (1e-5, 1e-5, 0.01, 0.5, 0.01)
    turn = settings("turn_ppo")
    assert (turn.gamma, turn.lam) == (0.99, 0.9)
    assert turn.critic_lr > turn.lr
    assert not settings("agent_r1").bootstrap_truncated
    assert settings("steppo").bootstrap_truncated
    assert settings("pspo") == settings("steppo")
    assert (ppo.batch, OptimizerConfig().max_grad_norm, settings("grpo").batch) == (16, 1.0, 64)
    assert settings("turn_ppo", OptimizerConfig(lr=1e-4)).critic_lr == pytest.approx(1e-3)
    dapo = settings("dapo")
    assert (dapo.flat_groups, dapo.overlong_share) == ("resample", 0.2)
    assert settings("layered").layer_weights == {"env": 0.4, "sem": 0.2, "task": 0.4}
    grpo = settings("grpo")
    assert (grpo.kl_form, grpo.kl_coef) == ("k3", 0.001)


def test_silent_presets_take_the_defaults():
    found = settings("steppo")
    assert (found.gamma, found.lam, found.lr, found.critic_lr) == (1.0, 0.95, 1e-6, 1e-6)
    assert settings("rloo").kl_coef == 0.001
    assert (found.mismatch, found.mismatch_cap) == ("truncate", 2.0)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_resolves_and_names_a_registered_estimator(preset: str):
    assert settings(preset).estimator in ESTIMATORS


def test_the_recipe_is_laid_over_the_preset():
    found = settings("grpo", estimator="step_gae", ratio="step", gamma=0.5, clip_high=0.28, value_clip=0.0)
    assert (found.estimator, found.needs_critic, found.ratio) == ("step_gae", True, "step")
    assert (found.gamma, found.clip_low, found.clip_high, found.value_clip) == (0.5, 0.2, 0.28, 0.0)


def test_kl_replaced_by_the_recipe_forgets_what_belonged_to_the_old_choice():
    none = settings("grpo", kl="none")
    assert (none.kl, none.needs_reference) == ("none", False)
    reward = settings("grpo", kl="reward", kl_coef=0.01)
    assert (reward.kl, reward.kl_coef) == ("reward", 0.01)
    assert settings("steppo", objective="cispo").dual_clip == 0.0


def test_learning_rates():
    assert settings("grpo", OptimizerConfig(lr=3e-4)).critic_lr == 3e-4
    both = settings("ppo", OptimizerConfig(lr=1e-4, critic_lr=2e-4))
    assert (both.lr, both.critic_lr) == (1e-4, 2e-4)


@pytest.mark.parametrize(
    ("preset", "given", "why"),
    [
        ("grpo", {"value_coef": 0.5}, "value_coef = 0.5 would be without effect: estimator 'grpo' has no critic"),
        ("grpo", {"value_clip": 0.2}, "value_clip"),
        ("grpo", {"gamma": 0.9}, "gamma = 0.9 .* 'grpo' does not read it"),
        ("rloo", {"lam": 0.9}, "lam"),
        ("reinforce", {"bootstrap_truncated": False}, "bootstrap_truncated"),
        ("rloo", {"ratio": "step"}, "ratio = 'step' .* has no ratio"),
        ("rloo", {"clip_low": 0.1}, "clip_low"),
        ("reinforce", {"clip_high": 0.1}, "clip_high"),
        ("cispo", {"dual_clip": 3.0}, "dual_clip"),
        ("grpo", {"norm_length": 100}, "norm_length"),
        ("gspo", {"kl_coef": 0.1}, "kl_coef .* kl is 'none'"),
        ("gspo", {"kl_target": 0.1}, "kl_target"),
        ("rloo", {"kl_form": "k2"}, "kl_form"),
        ("grpo", {"kl_stop": 0.1}, "kl_stop .* epochs x minibatches is 1"),
        ("grpo", {"mismatch": "none", "mismatch_cap": 3.0}, "mismatch_cap"),
        ("grpo", {"mismatch_low": 0.1}, "mismatch_low"),
        ("grpo", {"mismatch_high": 9.0}, "mismatch_high"),
        ("ppo", {"flat_groups": "drop"}, "flat_groups .* does not compare within a group"),
        ("grpo", {"kl_coef": 0.0}, "kl_coef = 0 does nothing"),
        ("grpo", {"resample_rounds": 2}, "resample_rounds .* flat_groups is 'keep'"),
        ("ppo", {"gamma_step": 0.9}, "gamma_step .* 'step_gae' does not read it"),
        ("ppo", {"estimator": "token_gae", "lam_step": 0.9}, "lam_step"),
        ("grpo", {"step_weight": 2.0}, "step_weight"),
        ("rloo", {"divide_by_std": False}, "divide_by_std"),
        ("reinforce", {"layer_weights": {"env": 1.0}}, "layer_weights"),
        ("reinforce", {"layer_estimator": "grpo"}, "layer_estimator"),
        ("layered", {"layer_estimator": "grpo", "gamma": 0.9}, "gamma .* layer_estimator 'grpo' does not read it"),
        ("layered", {"step_weight": 2.0}, "step_weight .* layer_estimator 'reinforce'"),
        ("layered", {"overlong_share": 0.1}, "overlong_share .* reads reward streams"),
        ("layered", {"kl": "reward"}, "kl = 'reward' would be without effect"),
        ("layered", {"flat_groups": "drop"}, "flat_groups"),
        ("layered", {"layer_weights": {"env": 0.0}}, "gives no stream a weight"),
    ],
)
def test_a_setting_without_effect_is_refused(preset: str, given: dict[str, Any], why: str):
    with pytest.raises(ConfigError, match=why):
        settings(preset, **given)


def test_a_critic_rate_without_a_critic_is_refused():
    with pytest.raises(ConfigError, match=r"optimizer\.critic_lr"):
        settings("grpo", OptimizerConfig(critic_lr=1e-5))


def test_the_same_settings_are_taken_where_they_act():
    assert settings("grpo", TWO_EPOCHS, kl_stop=0.1).kl_stop == 0.1
    assert settings("grpo", OptimizerConfig(minibatches=4), kl_stop=0.1).kl_stop == 0.1
    assert settings("grpo", aggregation="token_sum_norm", norm_length=100).norm_length == 100
    assert settings("grpo", mismatch="mask", mismatch_low=0.1).mismatch_low == 0.1
    assert settings("grpo", flat_groups="drop").flat_groups == "drop"
    assert settings("ppo", kl_stop=0.0).kl_stop == 0.0
    assert settings("dapo", flat_groups="keep", overlong_share=0.0).flat_groups == "keep"
    assert settings("dapo", resample_rounds=2).resample_rounds == 2
    assert settings("ppo", flat_groups="keep").flat_groups == "keep"
    bilevel = settings("ppo", estimator="bilevel_gae", gamma_step=0.9, lam=0.8)
    assert (bilevel.by_token, bilevel.needs_critic, bilevel.gamma_step, bilevel.lam) == (True, True, 0.9, 0.8)
    assert settings("gigpo", step_weight=2.0, divide_by_std=False).step_weight == 2.0
    assert settings("layered", layer_estimator="gigpo", gamma=0.9, step_weight=0.5).gamma == 0.9
    without = settings("layered", layer_weights={"env": 1.0, "sem": 0.0})
    assert not without.needs_reference


def test_what_a_preset_sets_for_its_own_estimator_goes_with_it() -> None:
    """Another estimator than the preset's need not read what the preset set, and that is nobody's fault."""
    assert settings("turn_ppo", estimator="grpo").gamma == 1.0
    assert settings("dapo", estimator="reinforce").flat_groups == "keep"
    assert settings("dapo", estimator="layered").overlong_share == 0.0


def test_the_number_of_groups_is_the_recipes_or_the_presets_batch() -> None:
    assert groups_of(RolloutConfig(), settings("grpo")) == 8
    assert groups_of(RolloutConfig(), settings("ppo")) == 2
    assert groups_of(RolloutConfig(group_size=1), settings("ppo")) == 16
    assert groups_of(RolloutConfig(groups=3), settings("ppo")) == 3
    for size in (5, 32):
        with pytest.raises(ConfigError, match=rf"group_size = {size}: the preset's batch of 16 .* Set rollout.groups"):
            groups_of(RolloutConfig(group_size=size), settings("ppo"))


def test_an_estimator_that_needs_more_than_rewards_estimates_no_stream() -> None:
    for name in ("step_gae", "remax", "layered", "nothing"):
        with pytest.raises(UnknownNameError, match=f"unknown estimator of a reward stream '{name}'"):
            settings("layered", layer_estimator=name)
    for weight in (-1.0, float("nan"), True, "much"):
        with pytest.raises(ConfigError, match=r"layer_weights\.env = .*legal is a number, 0 or above"):
            settings("layered", layer_weights={"env": weight, "task": 1.0})


@pytest.mark.parametrize(
    ("preset", "given"),
    [
        ("ppo", {"gamma": 1.1}),
        ("ppo", {"lam": -0.1}),
        ("ppo", {"clip_low": 0.0}),
        ("ppo", {"clip_low": 1.5}),
        ("ppo", {"clip_high": -0.1}),
        ("ppo", {"dual_clip": 0.5}),
        ("ppo", {"entropy_coef": -1.0}),
        ("ppo", {"value_coef": 0.0}),
        ("ppo", {"value_clip": -1.0}),
        ("grpo", {"kl_coef": -1.0}),
        ("grpo", {"kl_coef": float("nan")}),
        ("grpo", {"kl_target": -1.0}),
        ("grpo", {"mismatch_cap": 0.0}),
        ("grpo", {"mismatch": "mask", "mismatch_low": 2.0}),
        ("grpo", {"mismatch": "mask", "mismatch_high": 0.5}),
        ("grpo", {"aggregation": "token_sum_norm", "norm_length": 0}),
        ("grpo", {"overlong_share": 1.5}),
        ("dapo", {"resample_rounds": 0}),
        ("gigpo", {"step_weight": -1.0}),
        ("ppo", {"estimator": "bilevel_gae", "gamma_step": 2.0}),
    ],
)
def test_values_out_of_range_are_refused(preset: str, given: dict[str, Any]):
    with pytest.raises(ConfigError, match="legal is"):
        settings(preset, **given)


@pytest.mark.parametrize("rates", [{"lr": 0.0}, {"lr": -1.0}, {"critic_lr": 0.0}])
def test_learning_rates_out_of_range_are_refused(rates: dict[str, float]):
    with pytest.raises(ConfigError, match=r"optimizer\..*legal is above 0"):
        settings("ppo", OptimizerConfig(**rates))


def test_unknown_names_suggest():
    with pytest.raises(UnknownNameError, match=r"unknown preset 'gpro'\. Did you mean 'grpo'"):
        settings("gpro")
    with pytest.raises(UnknownNameError, match="unknown estimator"):
        settings("grpo", estimator="gae")


def test_every_algorithm_setting_of_the_recipe_reaches_the_settings():
    names = {item.name for item in fields(AlgorithmConfig)} - {"preset"}
    assert names <= {item.name for item in fields(AlgorithmSettings)}
