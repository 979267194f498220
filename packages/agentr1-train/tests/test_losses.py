"""Losses against golden answers (values, clip fractions, gradients), closed forms, and invariance to splitting."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from agentr1_train import losses
from agentr1_train.config import AlgorithmConfig, OptimizerConfig
from agentr1_train.losses import LossInputs, policy_loss, token_weights, value_loss
from agentr1_train.presets import AlgorithmSettings, resolve
from torch import Tensor

SETTINGS = replace(resolve(AlgorithmConfig(preset="ppo"), OptimizerConfig()), entropy_coef=0.0, mismatch="none")


def tensor(values) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def golden_cases(shared: Path, kind: str) -> list[dict[str, Any]]:
    cases = json.loads((shared / "golden" / "credit.json").read_text("utf-8"))["cases"]
    return [case for case in cases if case["kind"] == kind]


def close(got: Tensor, wanted) -> bool:
    return torch.allclose(got, tensor(wanted), atol=1e-6, rtol=1e-6)


def inputs_of(steps: list[dict[str, Any]], settings: AlgorithmSettings, keep: set[str] | None = None) -> LossInputs:
    """Lay steps end to end. Weights are over all of them; ``keep`` names the trajectories of this micro-batch."""
    names = list(dict.fromkeys(step["trajectory"] for step in steps))
    lengths = [[len(step["logp"]) for step in steps if step["trajectory"] == name] for name in names]
    weights = [w for row in token_weights(lengths, settings.aggregation, settings.norm_length) for w in row]
    rows = [(s, w) for s, w in zip(steps, weights, strict=True) if keep is None or s["trajectory"] in keep]
    here = [name for name in names if keep is None or name in keep]

    def each(numbers) -> Tensor:
        return tensor([x for (step, _), x in zip(rows, numbers, strict=True) for _ in step["logp"]])

    old = tensor([x for step, _ in rows for x in step["old_logp"]])
    return LossInputs(
        logp=tensor([x for step, _ in rows for x in step["logp"]]).requires_grad_(),
        old_logp=old,
        sampler_logp=old,
        advantage=each(step["advantage"] for step, _ in rows),
        weight=each(weight for _, weight in rows),
        step=each(range(len(rows))).long(),
        trajectory=each(here.index(step["trajectory"]) for step, _ in rows).long(),
        n_steps=len(rows),
        n_trajectories=len(here),
    )


def settings_of(case: dict[str, Any]) -> AlgorithmSettings:
    names = ("ratio", "objective", "aggregation", "clip_low", "clip_high", "norm_length")
    return replace(SETTINGS, dual_clip=case["dual_clip"] or 0.0, **{name: case[name] for name in names})


def gradient_of(inputs: LossInputs, settings: AlgorithmSettings) -> Tensor:
    policy_loss(inputs, settings).loss.backward()
    assert inputs.logp.grad is not None
    return inputs.logp.grad


def test_golden_policy_losses(shared: Path):
    cases = golden_cases(shared, "policy_loss")
    assert len(cases) == 120
    for case in cases:
        settings = settings_of(case)
        inputs = inputs_of(case["steps"], settings)
        output = policy_loss(inputs, settings)
        assert close(output.loss, case["loss"]), case
        fraction = output.sums["policy/clip_fraction"] / output.sums["policy/tokens"]
        assert close(fraction, case["clip_fraction"]), case
        assert close(gradient_of(inputs, settings), [g for step in case["gradient"] for g in step]), case


def test_golden_policy_losses_split_by_trajectory(shared: Path):
    """Trajectories one by one give the loss and the gradient of all together."""
    for case in golden_cases(shared, "policy_loss"):
        settings = settings_of(case)
        names = list(dict.fromkeys(step["trajectory"] for step in case["steps"]))
        parts = [inputs_of(case["steps"], settings, keep={name}) for name in names]
        assert close(sum((policy_loss(part, settings).loss for part in parts), tensor(0.0)), case["loss"])
        gradient = torch.cat([gradient_of(part, settings) for part in parts])
        assert close(gradient, [g for step in case["gradient"] for g in step])


def test_golden_kl(shared: Path):
    cases = golden_cases(shared, "kl")
    assert len(cases) == 4
    for case in cases:
        for form in ("k1", "k2", "k3"):
            assert close(losses.kl_terms(tensor(case["logp"]), tensor(case["ref_logp"]), form), case[form])


def test_golden_mismatch(shared: Path):
    cases = golden_cases(shared, "mismatch")
    assert len(cases) == 4
    for case in cases:
        ratio = (tensor(case["old_logp"]) - tensor(case["sampler_logp"])).exp()
        truncate = replace(SETTINGS, mismatch="truncate", mismatch_cap=case["cap"])
        mask = replace(SETTINGS, mismatch="mask", mismatch_low=case["mask_low"], mismatch_high=case["mask_high"])
        assert close(losses.mismatch_weights(ratio, truncate)[0], case["truncated"])
        assert close(losses.mismatch_weights(ratio, mask)[0], case["masked"])


def test_golden_value_loss(shared: Path):
    cases = golden_cases(shared, "value_loss")
    assert len(cases) == 4
    for case in cases:
        values, old, returns = (tensor(case[name]) for name in ("values", "old_values", "returns"))
        weight = torch.full_like(values, 1 / len(values))
        output = value_loss(values, old, returns, weight, replace(SETTINGS, value_clip=case["clip"], value_coef=1.0))
        assert close(output.loss, case["loss"])
        half = value_loss(values, old, returns, weight, replace(SETTINGS, value_clip=case["clip"], value_coef=0.5))
        assert close(half.loss, case["loss"] / 2)
        assert close(half.sums["critic/loss"], case["loss"])


def test_value_loss_without_clip_is_half_the_mean_square():
    values = tensor([1.0, 3.0])
    settings = replace(SETTINGS, value_clip=0.0, value_coef=1.0)
    output = value_loss(values, tensor([9.0, 9.0]), tensor([0.0, 1.0]), tensor([0.5, 0.5]), settings)
    assert output.loss == (0.5 * 1 + 0.5 * 4) / 2
    assert output.sums["critic/clip_fraction"] == 0


LENGTHS = [[2, 0, 3], [1], [0, 0]]


@pytest.mark.parametrize(
    ("aggregation", "wanted"),
    [
        ("token_mean", ((1 / 6, 0.0, 1 / 6), (1 / 6,), (0.0, 0.0))),
        ("step_mean", ((1 / 6, 0.0, 1 / 9), (1 / 3,), (0.0, 0.0))),
        ("trajectory_mean", ((1 / 8, 0.0, 1 / 12), (1 / 2,), (0.0, 0.0))),
        ("token_sum_norm", ((1 / 30, 0.0, 1 / 30), (1 / 30,), (0.0, 0.0))),
    ],
)
def test_token_weights_leave_empty_steps_and_trajectories_out_of_every_denominator(aggregation, wanted):
    got = token_weights(LENGTHS, aggregation, norm_length=10)
    assert [list(row) for row in got] == [pytest.approx(row) for row in wanted]


@pytest.mark.parametrize("aggregation", ["token_mean", "step_mean", "trajectory_mean", "token_sum_norm"])
def test_token_weights_of_nothing_but_empty_responses_are_zero(aggregation):
    assert token_weights([[0], []], aggregation, 10) == ((0.0,), ())
    assert losses.value_weights([[0], []]) == ((0.0,), ())


def test_value_weights_average_over_steps_with_tokens():
    assert losses.value_weights(LENGTHS) == ((1 / 3, 0.0, 1 / 3), (1 / 3,), (0.0, 0.0))


def example(**others: Any) -> LossInputs:
    """Five tokens: steps of two, one and two tokens, two trajectories."""
    logp = tensor([-1.0, -2.0, -0.5, -1.5, -0.1])
    values: dict[str, Any] = {
        "logp": logp.clone().requires_grad_(),
        "old_logp": logp,
        "sampler_logp": logp,
        "advantage": tensor([1.0, 1.0, -2.0, 0.5, 0.5]),
        "weight": tensor([0.2] * 5),
        "step": torch.tensor([0, 0, 1, 2, 2]),
        "trajectory": torch.tensor([0, 0, 0, 1, 1]),
        "n_steps": 3,
        "n_trajectories": 2,
    }
    return LossInputs(**values | others)


@pytest.mark.parametrize("ratio", ["token", "step", "trajectory"])
def test_on_policy_every_ratio_is_one_and_every_kl_zero(ratio):
    sums = policy_loss(example(), replace(SETTINGS, ratio=ratio)).sums
    assert sums["policy/ratio_mean"] == sums["policy/tokens"] == 5
    assert sums["policy/ratio_max"] == sums["mismatch/ratio_max"] == 1
    assert sums["policy/kl_old"] == sums["mismatch/kl"] == sums["policy/clip_fraction"] == 0


@pytest.mark.parametrize("objective", ["clip", "reinforce", "cispo"])
def test_on_policy_every_objective_has_the_policy_gradient(objective):
    inputs = example()
    gradient = gradient_of(inputs, replace(SETTINGS, objective=objective))
    assert close(gradient, (-inputs.weight * inputs.advantage).tolist())


def test_step_ratio_spreads_its_gradient_over_the_step():
    """Only the first token moved; both tokens of its step feel the ratio, the other steps do not."""
    inputs = example(old_logp=tensor([-1.1, -2.0, -0.5, -1.5, -0.1]))
    gradient = gradient_of(inputs, replace(SETTINGS, ratio="step"))
    grown = float(torch.tensor(0.05, dtype=torch.float64).exp())
    assert close(gradient, [-0.2 * grown, -0.2 * grown, 0.4, -0.1, -0.1])


def test_tokens_of_weight_zero_count_nowhere():
    rows = example(old_logp=tensor([-1.3, -2.0, -0.5, -1.5, -0.9]), sampler_logp=tensor([-1.0, -2.0, -9.0, -1.5, -9.0]))
    settings = replace(SETTINGS, mismatch="truncate")
    with_padding = replace(rows, weight=tensor([0.2, 0.2, 0.2, 0.0, 0.0]), logp=rows.logp.detach().requires_grad_())
    names = ("logp", "old_logp", "sampler_logp", "advantage", "weight", "step", "trajectory")
    alone = replace(with_padding, **{name: getattr(with_padding, name)[:3] for name in names})
    padded, wanted = policy_loss(with_padding, settings), policy_loss(alone, settings)
    assert padded.sums == wanted.sums
    assert padded.loss == wanted.loss
    padded.loss.backward()
    assert with_padding.logp.grad is not None
    assert with_padding.logp.grad[3:].tolist() == [0.0, 0.0]


def test_no_token_at_all_gives_a_finite_zero():
    names = ("logp", "old_logp", "sampler_logp", "advantage", "weight", "step", "trajectory")
    none = replace(example(), **{name: getattr(example(), name)[:0] for name in names}, n_steps=0, n_trajectories=0)
    for ratio in ("token", "step", "trajectory"):
        output = policy_loss(none, replace(SETTINGS, ratio=ratio))
        assert output.loss == 0
        assert all(total == 0 for total in output.sums.values())


def test_far_log_ratios_stay_finite():
    far = example(old_logp=tensor([-1e4, -2.0, 1e4, -1.5, -0.1]), sampler_logp=tensor([0.0, -1e5, 0.0, 0.0, 1e5]))
    for ratio in ("token", "step", "trajectory"):
        for objective in ("clip", "cispo", "reinforce"):
            output = policy_loss(far, replace(SETTINGS, ratio=ratio, objective=objective, mismatch="truncate"))
            assert torch.isfinite(output.loss)
            assert all(torch.isfinite(total) for total in output.sums.values())


def test_kl_in_the_loss_adds_coefficient_times_weighted_terms():
    reference = tensor([-1.2, -2.0, -0.1, -1.5, -0.1])
    plain = policy_loss(example(), SETTINGS).loss
    for form in ("k1", "k2", "k3"):
        inputs = example(ref_logp=reference)
        output = policy_loss(inputs, replace(SETTINGS, kl="loss", kl_form=form, kl_coef=0.3))
        terms = (inputs.weight * losses.kl_terms(inputs.logp.detach(), reference, form)).sum()
        assert close(output.loss - plain, (0.3 * terms).tolist())
        assert close(output.sums["policy/kl_loss"], terms.tolist())


def test_kl_in_the_reward_leaves_the_loss_alone_and_is_reported():
    output = policy_loss(example(ref_logp=tensor([-3.0] * 5)), replace(SETTINGS, kl="reward"))
    assert output.loss == policy_loss(example(), SETTINGS).loss
    assert output.sums["policy/kl_ref"] > 0


def test_entropy_is_rewarded_by_its_coefficient():
    entropy = tensor([1.0, 2.0, 3.0, 4.0, 5.0]).requires_grad_()
    output = policy_loss(example(entropy=entropy), replace(SETTINGS, entropy_coef=0.1))
    assert close(output.loss, (policy_loss(example(), SETTINGS).loss - 0.1 * 0.2 * 15).tolist())
    output.loss.backward()
    assert entropy.grad is not None
    assert close(entropy.grad, [-0.02] * 5)
    assert output.sums["policy/entropy"] == 15


def test_mismatch_weights_the_objective_and_is_measured():
    sampler = tensor([-1.0, -2.0, -0.5, -1.5, -3.0])  # the last token: ratio exp(2.9)
    output = policy_loss(example(sampler_logp=sampler), replace(SETTINGS, mismatch="truncate", objective="reinforce"))
    inputs = example()
    wanted = -inputs.weight * inputs.advantage * inputs.logp * tensor([1.0, 1.0, 1.0, 1.0, 2.0])
    assert close(output.loss, wanted.sum().tolist())
    assert output.sums["mismatch/clipped_fraction"] == 1
    assert close(output.sums["mismatch/ratio_max"], tensor(2.9).exp().tolist())
    off = policy_loss(example(sampler_logp=sampler), SETTINGS)
    assert off.loss == policy_loss(example(), SETTINGS).loss
    assert off.sums["mismatch/kl"] > 0


def test_kl_coefficient_moves_towards_its_target_by_at_most_two_percent():
    assert losses.adapt_kl_coef(0.1, 5.0, 0.01) == pytest.approx(0.102)
    assert losses.adapt_kl_coef(0.1, 0.0, 0.01) == pytest.approx(0.098)
    assert losses.adapt_kl_coef(0.1, 0.0105, 0.01) == pytest.approx(0.1005)


def test_kl_stop_is_off_at_zero():
    assert losses.passes_kl_stop(0.02, replace(SETTINGS, kl_stop=0.01))
    assert not losses.passes_kl_stop(0.005, replace(SETTINGS, kl_stop=0.01))
    assert not losses.passes_kl_stop(9.0, replace(SETTINGS, kl_stop=0.0))
