"""Names, reductions, and the numbers of a rollout."""

from dataclasses import replace

import pytest
import torch
from agentr1_train import metrics
from agentr1_train.advantages.records import Credit, CreditTrajectory
from agentr1_train.config import AlgorithmConfig, OptimizerConfig
from agentr1_train.losses import LossInputs, policy_loss, value_loss
from agentr1_train.presets import resolve
from agentr1_train.trajectory import Step, Trajectory


def step(reward: float = 0.0, tokens: int = 2, prompt: int = 3, **others) -> Step:
    base = Step(
        prompt_ids=(1,) * prompt,
        response_ids=(2,) * tokens,
        response_logprobs=(-0.5,) * tokens,
        observation="seen",
        action="said",
        reward=reward,
        terminated=False,
        truncated=False,
        finish_reason="stop",
        state_key="k",
        sample_s=0.5,
        env_s=0.25,
    )
    return replace(base, **others)


def trajectory(*steps: Step, **others) -> Trajectory:
    base = Trajectory(
        steps=steps,
        env_id="env",
        task_id="t",
        seed=1,
        group=0,
        member=0,
        success=False,
        end_reason="terminated",
        final_observation="end",
    )
    return replace(base, **others)


BATCH = [
    trajectory(step(), step(1.0, reward_parts={"task": 1.0, "env": 0.5}), success=True, metrics={"em": 1.0}),
    trajectory(step(tokens=0, finish_reason="prompt_too_long"), member=1, end_reason="prompt_too_long"),
    trajectory(step(0.25, tokens=5, finish_reason="length"), group=1, metrics={"em": 0.0}),
    trajectory(step(0.25, prompt=9), group=1, member=1, end_reason="max_steps"),
    trajectory(group=1, member=2, end_reason="error", error="reset: TimeoutError"),
]


def test_rollout_metrics():
    found = metrics.rollout_metrics([metrics.summarise(item) for item in BATCH])
    wanted = {
        "rollout/trajectories": 5,
        "rollout/groups": 2,
        "rollout/flat_groups": 1,
        "rollout/success": 0.2,
        "rollout/return_mean": 0.3,
        "rollout/return_min": 0.0,
        "rollout/return_max": 1.0,
        "rollout/steps_mean": 1.0,
        "rollout/steps_max": 2,
        "rollout/tokens": 11,
        "rollout/response_tokens_mean": 11 / 5,
        "rollout/response_tokens_max": 5,
        "rollout/prompt_tokens_mean": 21 / 5,
        "rollout/prompt_tokens_max": 9,
        "rollout/branches": 0,
        "rollout/empty_responses": 1,
        "rollout/truncated_fraction": 0.4,
        "rollout/errors": 1,
        "end/terminated": 2,
        "end/prompt_too_long": 1,
        "end/max_steps": 1,
        "end/error": 1,
        "end/env_truncated": 0,
        "end/token_budget": 0,
        "finish/stop": 3,
        "finish/length": 1,
        "finish/prompt_too_long": 1,
        "reward/task": 0.2,
        "reward/env": 0.1,
        "info/em": 0.5,
        "time/sample_step": 0.5,
        "time/env_step": 0.25,
    }
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
    assert set(found) - set(wanted) == {"rollout/return_std"}


def test_rollout_metrics_do_not_depend_on_order():
    summaries = [metrics.summarise(item) for item in BATCH]
    assert metrics.rollout_metrics(summaries[::-1]) == metrics.rollout_metrics(summaries)


def test_rollout_metrics_of_nothing_are_zeros():
    assert set(metrics.rollout_metrics([]).values()) == {0}


def loss_inputs(tokens: slice = slice(0, 4)) -> LossInputs:
    old = torch.tensor([-1.0, -2.0, -0.5, -1.5])[tokens]
    logp = (old + torch.tensor([0.0, 0.1, 0.4, -0.2])[tokens]).requires_grad_()
    return LossInputs(
        logp=logp,
        old_logp=old,
        sampler_logp=old - torch.tensor([0.0, 1.0, 0.0, 0.0])[tokens],
        advantage=torch.tensor([1.0, 1.0, 1.0, -1.0])[tokens],
        weight=torch.full_like(old, 0.25),
        step=torch.arange(len(old)),
        trajectory=torch.arange(len(old)),
        n_steps=len(old),
        n_trajectories=len(old),
        ref_logp=old - 0.1,
        entropy=torch.full_like(old, 2.0),
    )


SETTINGS = resolve(AlgorithmConfig(preset="ppo"), OptimizerConfig())


def test_sums_of_micro_batches_finish_as_those_of_the_whole():
    whole = metrics.finish(policy_loss(loss_inputs(), SETTINGS).sums)
    parts = [policy_loss(loss_inputs(tokens), SETTINGS).sums for tokens in (slice(0, 1), slice(1, 4))]
    merged = metrics.merge(parts)
    assert metrics.finish(merged) == pytest.approx(whole, rel=1e-6)
    assert whole["policy/tokens"] == 4
    assert whole["policy/entropy"] == 2.0
    assert whole["policy/clip_fraction"] == 0.25
    assert whole["mismatch/clipped_fraction"] == 0.25
    assert whole["policy/ratio_max"] == pytest.approx(torch.tensor(0.4).exp().item())


def test_everything_a_loss_reports_is_in_the_glossary():
    kl = resolve(AlgorithmConfig(preset="grpo"), OptimizerConfig())
    values = torch.ones(2)
    sums = policy_loss(loss_inputs(), kl).sums | value_loss(values, values, values, values / 2, SETTINGS).sums
    rollout = metrics.rollout_metrics([metrics.summarise(item) for item in BATCH])
    assert [name for name in (*sums, *rollout) if metrics.describe(name) is None] == []


def test_describe_knows_patterns_and_nothing_else():
    assert metrics.describe("reward/task") == metrics.METRICS["reward/<part>"]
    assert metrics.describe("policy/loss") == metrics.METRICS["policy/loss"]
    assert metrics.describe("policy/los") is None
    assert metrics.describe("reward/") is None


def test_merge_takes_the_maximum_of_max_and_adds_the_rest():
    assert metrics.merge([{"a": 1.0, "a_max": 1.0}, {"a": 2.0, "a_max": 0.5, "b": 3.0}]) == {
        "a": 3.0,
        "a_max": 1.0,
        "b": 3.0,
    }
    assert metrics.merge([]) == {}


def test_finish_without_a_token_is_zero():
    assert metrics.finish({"policy/tokens": 0.0, "policy/entropy": 0.0}) == {
        "policy/tokens": 0.0,
        "policy/entropy": 0.0,
    }


def test_average_joins_optimizer_steps():
    assert metrics.average([{"x": 1.0, "x_max": 1.0}, {"x": 3.0, "x_max": 0.0, "y": 5.0}]) == {
        "x": 2.0,
        "x_max": 1.0,
        "y": 5.0,
    }


def test_credit_metrics():
    batch = [CreditTrajectory(0, 0, (0.0, 1.0), (1, 1), values=(1.0, 0.0))]
    credit = Credit(advantages=((1.0, -3.0),), returns=((1.0, 2.0),), raw=((1.0, 1.0),))
    found = metrics.credit_metrics(batch, credit)
    assert found["credit/advantage_mean"] == -1.0
    assert found["credit/advantage_abs_max"] == 3.0
    assert found["credit/raw_std"] == 0.0
    assert found["critic/explained_variance"] == pytest.approx(1 - 2.0 / 0.5)
    flat = Credit(advantages=((1.0, -3.0),), returns=((1.0, 1.0),), raw=((1.0, 1.0),))
    assert "critic/explained_variance" not in metrics.credit_metrics(batch, flat)
