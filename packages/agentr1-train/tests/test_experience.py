"""From trajectories to credit: values, KL, failures and truncation, evaluated by real engines."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from agentr1_train.config import Recipe, recipe_from_dict
from agentr1_train.credit_records import is_trained
from agentr1_train.critic_values import prompt_only
from agentr1_train.experience import Experience, build_experience
from agentr1_train.trainer import Run, open_run
from agentr1_train.trajectory import Step, Trajectory, TrajectoryGroup

pytestmark = pytest.mark.once

Make = Callable[..., dict[str, Any]]
ASK, END, A, B = 2, 1, 3, 4


def step(prompt: tuple[int, ...], response: tuple[int, ...], reward: float, **others: Any) -> Step:
    record = {
        "prompt_ids": prompt,
        "response_ids": response,
        "response_logprobs": (-1.6,) * len(response),
        "observation": "a",
        "action": "a",
        "reward": reward,
        "terminated": False,
        "truncated": False,
        "finish_reason": "stop",
        "state_key": "",
    }
    return Step(**record | others)


def trajectory(group: int, member: int, rewards: tuple[float, ...], **others: Any) -> Trajectory:
    steps, prompt = [], (A, ASK)
    for reward in rewards:
        response = (A if (group + member + len(steps)) % 2 else B,)
        steps.append(step(prompt, response, reward))
        prompt = (*prompt, *response, END, B, ASK)
    record = {
        "steps": tuple(steps),
        "env_id": "x",
        "task_id": "",
        "seed": group,
        "group": group,
        "member": member,
        "success": False,
        "end_reason": "terminated",
        "final_observation": "",
    }
    return Trajectory(**record | others)


def groups_of(*trajectories: Trajectory) -> list[TrajectoryGroup]:
    indices = sorted({item.group for item in trajectories})
    return [TrajectoryGroup(g, g, tuple(item for item in trajectories if item.group == g)) for g in indices]


@pytest.fixture
def open_ppo(symbol_recipe: Make) -> Iterator[Run]:
    """A run with a critic whose values are not all zero."""
    with open_run(recipe_from_dict(symbol_recipe(algorithm={"preset": "ppo"}))) as run:
        assert run.models.critic is not None
        head: Any = run.models.critic.module.head
        with torch.no_grad():
            head.weight.copy_(torch.linspace(-0.3, 0.3, head.weight.numel()).view_as(head.weight))
        yield run


def build(run: Run, *trajectories: Trajectory, **changes: Any) -> Experience:
    recipe: Recipe = replace(run.recipe, **changes)
    return build_experience(groups_of(*trajectories), run.models, recipe, run.settings, seed=0)


def test_a_reward_at_the_end_reaches_every_step_before_it(open_ppo: Run) -> None:
    """The closed form of step GAE, from the values that the critic gave the steps."""
    experience = build(open_ppo, trajectory(0, 0, (0.0, 0.0, 1.0)), trajectory(0, 1, (0.0, 0.0, 0.0)))
    values = experience.records[0].values
    assert values is not None
    assert len(set(values)) == 3
    lam, bounds = open_ppo.settings.lam, (*values, 0.0)
    deltas = [reward + bounds[t + 1] - bounds[t] for t, reward in enumerate((0.0, 0.0, 1.0))]
    want = [math.fsum(lam**k * delta for k, delta in enumerate(deltas[t:])) for t in range(3)]
    assert experience.credit.raw[0] == pytest.approx(want)
    assert experience.credit.returns is not None
    assert experience.credit.returns[0] == pytest.approx([a + v for a, v in zip(want, values, strict=True)])
    assert experience.rows[0].advantage == experience.credit.advantages[0][0]
    assert experience.rows[0].return_ == experience.credit.returns[0][0]


def test_a_cut_trajectory_bootstraps_on_the_value_of_what_would_have_followed(open_ppo: Run) -> None:
    other = trajectory(0, 1, (0.0, 1.0))
    ended = trajectory(0, 0, (0.0, 0.0))
    cut = replace(ended, end_reason="max_steps", final_prompt_ids=(A, ASK, B, END, A, ASK))
    over, bootstrapped = build(open_ppo, ended, other), build(open_ppo, cut, other)
    final = bootstrapped.records[0].final_value
    assert over.records[0].final_value == 0
    assert abs(final) > 1e-3
    assert bootstrapped.credit.raw[0][1] - over.credit.raw[0][1] == pytest.approx(final, rel=1e-5)
    elsewhere = build(open_ppo, replace(cut, final_prompt_ids=(B, ASK)), other)
    assert elsewhere.credit.raw[0] != bootstrapped.credit.raw[0]
    open_ppo.settings = replace(open_ppo.settings, bootstrap_truncated=False)
    assert build(open_ppo, cut, other).credit.raw == over.credit.raw


def test_the_critic_reads_prompts_and_never_responses(open_ppo: Run) -> None:
    one, other = trajectory(0, 0, (0.0,)), trajectory(0, 1, (1.0,))
    spoken = replace(one, steps=(replace(one.steps[0], response_ids=(B, B, A), response_logprobs=(-1.0,) * 3),))
    assert build(open_ppo, one, other).records[0].values == build(open_ppo, spoken, other).records[0].values
    row = build(open_ppo, spoken, other).rows[0]
    assert prompt_only(row).response_ids == ()
    assert len(prompt_only(row)) == len(row.prompt_ids)


def test_failed_and_empty_trajectories(open_ppo: Run) -> None:
    failed = trajectory(0, 0, (0.0, 0.0), end_reason="error", error="step 1: KeyError: 'x'")
    unborn = trajectory(0, 1, (), end_reason="prompt_too_long")
    sound = [trajectory(1, 0, (1.0,)), trajectory(1, 1, (0.0,))]
    assert not is_trained(failed, open_ppo.recipe)
    assert not is_trained(unborn, open_ppo.recipe)
    dropped = build(open_ppo, failed, unborn, *sound)
    assert [(item.group, item.member) for item in dropped.records] == [(1, 0), (1, 1)]
    kept = build(open_ppo, failed, unborn, *sound, rollout=replace(open_ppo.recipe.rollout, on_error="truncate"))
    assert [(item.group, item.member) for item in kept.records] == [(0, 0), (1, 0), (1, 1)]
    assert kept.records[0].truncated
    nothing = build(open_ppo, failed, unborn)
    assert (nothing.records, nothing.rows) == ((), ())


def test_an_empty_response_stays_in_credit_and_holds_no_token(open_ppo: Run) -> None:
    silent = trajectory(0, 0, (0.0, 1.0))
    silent = replace(silent, steps=(replace(silent.steps[0], response_ids=(), response_logprobs=()), silent.steps[1]))
    experience = build(open_ppo, silent, trajectory(0, 1, (0.0, 0.0)))
    assert experience.records[0].lengths == (0, 1)
    assert all(map(math.isfinite, (*experience.credit.advantages[0], *experience.credit.advantages[1])))


def test_groups_in_any_order_give_the_same_credit(open_ppo: Run) -> None:
    items = [trajectory(g, m, (0.0, float(g * m))) for g in range(2) for m in range(2)]
    one = build(open_ppo, *items)
    recipe, models, settings = open_ppo.recipe, open_ppo.models, open_ppo.settings
    other = build_experience(groups_of(*items)[::-1], models, recipe, settings, seed=0)
    assert other.credit == one.credit
    assert [row.trajectory for row in other.rows] != [row.trajectory for row in one.rows]
    advantages = [{(row.trajectory, row.prompt_ids): row.advantage for row in found.rows} for found in (one, other)]
    assert advantages[0] == pytest.approx(advantages[1])


def test_kl_in_the_reward_is_charged_once_the_policy_has_left_its_start(symbol_recipe: Make) -> None:
    recipe = recipe_from_dict(symbol_recipe(algorithm={"preset": "reinforce", "kl_coef": 0.5}))
    items = [trajectory(0, m, (0.0, float(m))) for m in range(2)]
    with open_run(recipe) as run:
        at_start = build(run, *items)
        assert at_start.has_old_logp
        assert at_start.records[1].rewards == pytest.approx((0.0, 1.0), abs=1e-5)
        weight: Any = run.models.policy.module.model.lm_head.weight  # type: ignore[union-attr]
        with torch.no_grad():
            weight[A].add_(0.5)
        moved = build(run, *items)
        for record, rewards in zip(moved.records, ((0.0, 0.0), (0.0, 1.0)), strict=True):
            rows = [row for row in moved.rows if row.trajectory == (record.group, record.member)]
            k1 = [sum(o - r for o, r in zip(row.old_logp, row.ref_logp or (), strict=True)) for row in rows]
            assert all(abs(value) > 1e-3 for value in k1)
            assert record.rewards == pytest.approx([r - 0.5 * value for r, value in zip(rewards, k1, strict=True)])
        assert "policy/kl_reward" in moved.metrics


@pytest.mark.parametrize("scope", ["batch", "group"])
def test_permuted_returns_are_exchanged_and_none_is_lost(scope: str, symbol_recipe: Make) -> None:
    recipe = recipe_from_dict(symbol_recipe(algorithm={"permute_returns": scope, "kl": "none"}))
    items = [trajectory(g, m, (0.0, g + m / 10)) for g in range(3) for m in range(4)]
    with open_run(recipe) as run:
        found = [[item.rewards[1] for item in build(run, *items).records] for _ in range(2)]
        again = build_experience(groups_of(*items), run.models, recipe, run.settings, seed=1)
    given = [item.rewards[1] for item in items]
    assert found[0] == found[1] != given
    assert sorted(found[0]) == sorted(given)
    assert [item.rewards[1] for item in again.records] != found[0]
    stayed = all({int(value) for value in found[0][g * 4 : g * 4 + 4]} == {g} for g in range(3))
    assert stayed == (scope == "group")


def test_old_and_reference_log_probabilities_and_values_are_read_off_trees(symbol_recipe: Make, tmp_path: Path) -> None:
    """Each distinct token of the rollout is computed once by every model, and gives what it gives in rows."""
    items = [trajectory(g, m, (0.0, 0.0, float(m))) for g in range(2) for m in range(3)]
    cut = replace(items[0], end_reason="max_steps", final_prompt_ids=(*items[0].steps[-1].prompt_ids, B, END, A, ASK))
    found, computed = [], []
    for packing in ("rows", "tree"):
        recipe = recipe_from_dict(
            symbol_recipe(
                run_dir=str(tmp_path / packing),
                algorithm={"preset": "ppo", "kl": "loss"},
                optimizer={"epochs": 2},
                engine={"device": "cpu", "threads": 1, "packing": packing},
            )
        )
        with open_run(recipe) as run:
            calls: list[tuple[bool, int]] = []
            for model in (run.models.policy, run.models.critic, run.models.reference):
                assert model is not None
                _tell(model, calls)
            head: Any = run.models.critic.module.head  # type: ignore[union-attr]
            with torch.no_grad():
                head.weight.copy_(torch.linspace(-0.3, 0.3, head.weight.numel()).view_as(head.weight))
            found.append(build(run, cut, *items[1:]))
        assert [in_tree for in_tree, _ in calls] == [packing == "tree"] * 3
        computed.append([tokens for _, tokens in calls])
    assert all(tree < rows / 2 for rows, tree in zip(*computed, strict=True))
    for in_rows, in_tree in zip(found[0].rows, found[1].rows, strict=True):
        assert in_tree.old_logp == pytest.approx(in_rows.old_logp, abs=1e-5)
        assert in_tree.ref_logp == pytest.approx(in_rows.ref_logp, abs=1e-5)
        assert in_tree.old_value == pytest.approx(in_rows.old_value, abs=1e-5)
        assert in_tree.advantage == pytest.approx(in_rows.advantage, abs=1e-4)
    assert found[0].records[0].final_value == pytest.approx(found[1].records[0].final_value, abs=1e-5)
    assert len({row.old_value for row in found[1].rows}) > 3


def _tell(model: Any, calls: list[tuple[bool, int]]) -> None:
    """Let a model tell of each evaluation whether it is of trees, and how many tokens it computes."""
    evaluate = model.evaluate

    def told(batches: Any) -> Any:
        calls.append((batches[0].segments is not None, sum(batch.input_ids.numel() for batch in batches)))
        return evaluate(batches)

    model.evaluate = told
