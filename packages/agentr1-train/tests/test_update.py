"""Optimizer steps: gradients that packing, order and mini-batches cannot change, and settings that all act."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from agentr1_train import experience as experience_module
from agentr1_train import update as update_module
from agentr1_train.advantages import CreditTrajectory, TokenCredit, estimate
from agentr1_train.algorithm_config import AlgorithmConfig
from agentr1_train.batch import MicroBatch, Row, pack, split_tokens
from agentr1_train.config import OptimizerConfig, recipe_from_dict
from agentr1_train.errors import SpanMismatchError
from agentr1_train.experience import Experience
from agentr1_train.losses import policy_loss
from agentr1_train.policy import PolicyModel
from agentr1_train.presets import PRESETS, AlgorithmSettings, resolve
from agentr1_train.trainer import open_run
from agentr1_train.update import loss_inputs, minibatch_rows, rows_with_gradient, update_models

Make = Callable[..., dict[str, Any]]


def settings_of(preset: str = "grpo", epochs: int = 2, **choices: Any) -> AlgorithmSettings:
    return resolve(AlgorithmConfig(preset=preset, **choices), OptimizerConfig(epochs=epochs))


TOKENS = ("token_gae", "bilevel_gae")

STEPS = (2, 1, 3, 2)
"""Steps of each of four trajectories in two groups: eight rows."""


def experience_of(settings: AlgorithmSettings, model: Any, order: Sequence[int] = range(4)) -> Experience:
    """Ragged rows, each paid at its trajectory's end; ``order`` is that of this rank's trajectories.

    Old, sampler's and reference log-probabilities lie around the model's own.
    """
    draw = torch.Generator().manual_seed(3)

    def ids(low: int, high: int) -> tuple[int, ...]:
        length = int(torch.randint(low, high, (1,), generator=draw))
        return tuple(torch.randint(3, 300, (length,), generator=draw).tolist())

    def near(logp: tuple[float, ...]) -> tuple[float, ...]:
        return tuple((torch.tensor(logp) + 0.15 * torch.randn(len(logp), generator=draw)).tolist())

    rows = {(at, step): Row(ids(3, 20), ids(1, 9), (at // 2, at % 2)) for at in range(4) for step in range(STEPS[at])}
    batches = pack(list(rows.values()), 10_000)
    with torch.no_grad():
        own = split_tokens(batches, [PolicyModel(model)(batch)[0] for batch in batches], len(rows))
    records = tuple(
        CreditTrajectory(
            group=at // 2,
            member=at % 2,
            rewards=(0.0,) * (STEPS[at] - 1) + (paid,),
            lengths=tuple(len(rows[at, step].response_ids) for step in range(STEPS[at])),
            values=(0.0,) * STEPS[at] if settings.needs_critic else None,
            token_values=tuple((0.0,) * len(rows[at, step].response_ids) for step in range(STEPS[at])),
            state_keys=tuple(str(step) for step in range(STEPS[at])),
            parts=dict.fromkeys(("env", "sem", "task"), (0.0,) * (STEPS[at] - 1) + (paid,)),
            greedy_return=0.25,
        )
        for at, paid in enumerate((1.0, 0.0, 0.5, 2.0))
    )
    credit = estimate(records, settings)
    made = {
        place: replace(
            experience_module._credited(row, place, credit),
            sampler_logp=near(logp),
            old_logp=near(logp),
            ref_logp=near(logp),
        )
        for (place, row), logp in zip(rows.items(), own, strict=True)
    }
    places = tuple((at, step) for at in order for step in range(STEPS[at]))
    credit = credit.of_steps() if isinstance(credit, TokenCredit) else credit
    return Experience(records, credit, tuple(made[place] for place in places), places, frozenset(), True, {})


def of_rank(experience: Experience, rank: int) -> Experience:
    """What one of two ranks holds: all records, and the rows of its group."""
    mine = [at for at, (trajectory, _) in enumerate(experience.places) if experience.records[trajectory].group == rank]
    rows, places = (tuple(found[at] for at in mine) for found in (experience.rows, experience.places))
    return replace(experience, rows=rows, places=places)


def gradient(
    model: Any, experience: Experience, settings: AlgorithmSettings, budget: int = 4096, parts: int = 1, pad_id: int = 0
) -> torch.Tensor:
    """The gradient of one pass, by the functions of the trainer, without an engine."""
    policy = PolicyModel(model.requires_grad_(True), entropy_grad=settings.entropy_coef > 0)
    policy.zero_grad()
    for part in range(parts):
        rows = minibatch_rows(experience, settings, part, parts)
        assert rows is not None
        for batch in pack(rows, budget, pad_id, keep_trajectories_together=settings.ratio == "trajectory"):
            policy_loss(loss_inputs(policy(batch), batch, True), settings).loss.backward()
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])


ALL = [(preset, {}) for preset in sorted(PRESETS)] + [("ppo", {"estimator": name}) for name in TOKENS]


@pytest.mark.parametrize(("preset", "choices"), ALL, ids=str)
def test_micro_batches_padding_order_and_ranks_do_not_change_the_gradient(
    preset: str, choices: dict[str, Any], tiny_model
) -> None:
    """1 x 8, 2 x 4, 4 x 2 and 8 x 1 rows; other padding; trajectories in another order; a group on each rank."""
    settings = settings_of(preset, **choices)
    experience = experience_of(settings, tiny_model)
    rows = minibatch_rows(experience, settings, 0, 1)
    assert rows is not None
    widest = max(map(len, rows))
    assert [len(pack(rows, budget)) for budget in (8 * widest, 1)] == [1, 8]
    assert 2 <= len(pack(rows, 2 * widest)) <= 4
    assert len(pack(rows, 4 * widest)) == 2
    whole = gradient(tiny_model, experience, settings, 8 * widest)
    assert whole.norm() > 1e-4
    for budget in (4 * widest, 2 * widest, 1):
        torch.testing.assert_close(gradient(tiny_model, experience, settings, budget), whole, rtol=1e-4, atol=1e-6)
    padded = gradient(tiny_model, experience, settings, 8 * widest, pad_id=7)
    torch.testing.assert_close(padded, whole, rtol=1e-4, atol=1e-6)
    ranks = [gradient(tiny_model, of_rank(experience, rank), settings, 8 * widest) for rank in range(2)]
    torch.testing.assert_close(ranks[0] + ranks[1], whole, rtol=1e-4, atol=1e-6)
    reordered = gradient(tiny_model, experience_of(settings, tiny_model, (2, 0, 3, 1)), settings, 2 * widest)
    torch.testing.assert_close(reordered, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_reward_at_the_end_moves_the_tokens_of_the_first_step(preset: str, tiny_model) -> None:
    """The gradient with respect to the log-probabilities of step 0, in a trajectory paid only at its last step."""
    settings = settings_of(preset)
    rows = minibatch_rows(experience_of(settings, tiny_model), settings, 0, 1)
    assert rows is not None
    (batch,) = pack(rows, 10_000)
    logp = batch.old_logp.clone().requires_grad_(True)
    inputs = loss_inputs((logp, torch.zeros_like(logp)), batch, True)
    policy_loss(replace(inputs, ref_logp=None), replace(settings, kl="none", entropy_coef=0.0)).loss.backward()
    assert logp.grad is not None
    first = torch.tensor([batch.rows[row] == STEPS[0] + STEPS[1] for row in batch.step.tolist()])
    assert first.any()
    assert logp.grad[first].abs().min() > 0  # step 0 of the third trajectory, which has three and is paid at the last


def test_minibatches_part_the_trajectories_and_each_has_its_own_denominator(tiny_model) -> None:
    settings = settings_of("ppo")
    experience = experience_of(settings, tiny_model)
    parts = [minibatch_rows(experience, settings, part, 2) for part in range(2)]
    assert [{row.trajectory for row in rows or ()} for rows in parts] == [{(0, 0), (1, 0)}, {(0, 1), (1, 1)}]
    for rows in parts:
        assert math.fsum(row.weight * len(row.response_ids) for row in rows or ()) == pytest.approx(1)
        assert math.fsum(row.value_weight for row in rows or ()) == pytest.approx(1)


def test_a_minibatch_without_a_token_is_left_out(tiny_model) -> None:
    settings = settings_of("grpo")
    experience = experience_of(settings, tiny_model)
    assert minibatch_rows(replace(experience, left_out=frozenset({0, 1})), settings, 0, 1) is None
    kept = minibatch_rows(replace(experience, left_out=frozenset({0})), settings, 0, 1)
    assert {row.trajectory[0] for row in kept or ()} == {1}


@pytest.mark.parametrize(
    "choice",
    [
        {"entropy_coef": 0.1},
        {"kl_form": "k1"},
        {"kl_coef": 0.5},
        {"kl": "none"},
        {"mismatch": "none"},
        {"mismatch": "mask", "mismatch_high": 1.01},
        {"mismatch_cap": 0.9},
        {"clip_high": 0.01},
        {"clip_low": 0.01},
        {"dual_clip": 1.01},
        {"ratio": "step"},
        {"ratio": "trajectory"},
        {"objective": "cispo"},
        {"objective": "reinforce"},
        {"aggregation": "token_mean"},
        {"aggregation": "trajectory_mean"},
        {"aggregation": "token_sum_norm", "norm_length": 5},
        {"estimator": "reinforce"},
    ],
    ids=str,
)
def test_every_choice_of_the_algorithm_changes_the_gradient(choice: dict[str, Any], tiny_model) -> None:
    base = settings_of("grpo")
    before = gradient(tiny_model, experience_of(base, tiny_model), base)
    changed = settings_of("grpo", **choice)
    after = gradient(tiny_model, experience_of(changed, tiny_model), changed)
    assert (after - before).norm() > 1e-5 * before.norm()


PAID = {"env": {"kwargs": {"steps": 1}}, "rollout": {"groups": 4, "group_size": 8}}
"""So easy that some groups have unequal rewards from the start."""


def run_once(table: dict[str, Any]) -> dict[str, float]:
    """Roll out and learn once, and return what the update reported."""
    recipe = recipe_from_dict(table)
    with open_run(recipe) as run:
        experience = run.assign_credit(run.roll_out(0), 0)
        return update_models(experience, run.models, recipe, run.settings, 0)


def test_epochs_and_minibatches_are_optimizer_steps(symbol_recipe: Make) -> None:
    once = run_once(symbol_recipe(**PAID, optimizer={"epochs": 2, "minibatches": 3}))
    assert once["policy/optimizer_steps"] == 6
    assert once["policy/kl_stopped"] == 0
    assert once["policy/ratio_max"] > 1  # later steps leave the old policy


def test_kl_stop_ends_the_epochs(symbol_recipe: Make) -> None:
    stopped = run_once(symbol_recipe(**PAID, optimizer={"epochs": 6, "lr": 0.1}, algorithm={"kl_stop": 1e-4}))
    assert stopped["policy/kl_stopped"] == 1
    assert 2 <= stopped["policy/optimizer_steps"] < 6


def test_the_span_assertion_fires_when_a_token_is_corrupted_after_collation(
    symbol_recipe: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def corrupt(*args: Any, **kwargs: Any) -> list[MicroBatch]:
        batches = pack(*args, **kwargs)
        batch = batches[-1]
        inputs = batch.input_ids.clone()
        at = batch.target_index[-1]
        inputs.view(-1)[at] = (inputs.view(-1)[at] + 1) % 5
        return [*batches[:-1], dataclasses.replace(batch, input_ids=inputs)]

    monkeypatch.setattr(update_module, "pack", corrupt)
    with pytest.raises(SpanMismatchError, match=r"sampled id \d, but the packed input holds \d"):
        run_once(symbol_recipe())


def test_flat_groups_are_dropped_and_counted(symbol_recipe: Make) -> None:
    """No policy can say these symbols, so every group is flat and nothing is left to train."""
    impossible = {"kwargs": {"symbols": "cd"}}
    recipe = recipe_from_dict(symbol_recipe(env=impossible, algorithm={"flat_groups": "drop"}))
    with open_run(recipe) as run:
        experience = run.assign_credit(run.roll_out(0), 0)
        assert experience.left_out == {0, 1}
        assert experience.metrics["credit/dropped_groups"] == 2
        assert experience.records == ()  # they take no part in whitening either
        assert update_models(experience, run.models, recipe, run.settings, 0)["policy/optimizer_steps"] == 0
    kept = run_once(symbol_recipe(env=impossible, run_dir=recipe.run_dir + "-kept"))
    assert kept["policy/optimizer_steps"] == 1


@pytest.mark.parametrize(("ratio", "left"), [("token", 5), ("trajectory", 7)])
def test_rows_that_cannot_move_the_policy_are_not_computed(ratio: Any, left: int, tiny_model) -> None:
    settings = settings_of("grpo", kl="none", ratio=ratio)
    experience = experience_of(settings, tiny_model)
    idle = {(0, 1), (1, 0), (2, 0)}  # a step of the first trajectory, the whole second, a step of the third
    zeroed = replace(
        experience,
        rows=tuple(
            replace(row, advantage=0.0) if place in idle else row
            for row, place in zip(experience.rows, experience.places, strict=True)
        ),
    )
    rows = minibatch_rows(zeroed, settings, 0, 1)
    assert rows is not None
    kept = rows_with_gradient(rows, settings)
    assert len(rows) == 8
    assert len(kept) == left
    whole = gradient(tiny_model, zeroed, settings)
    policy = PolicyModel(tiny_model)
    policy.zero_grad()
    for batch in pack(kept, 10_000, keep_trajectories_together=True):
        policy_loss(loss_inputs(policy(batch), batch, True), settings).loss.backward()
    found = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-7)
    assert rows_with_gradient([replace(row, advantage=0.0) for row in rows], settings) == [
        replace(rows[0], advantage=0.0, weight=0.0)
    ]
    assert len(rows_with_gradient(rows, settings_of("grpo"))) == 8  # KL in the loss moves every row
