"""What is played for an update: flat groups replaced, greedy rollouts beside the sampled, through the real trainer."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from agentr1_train.collection import enough_groups
from agentr1_train.config import Recipe, RolloutConfig, recipe_from_dict
from agentr1_train.errors import ConfigError
from agentr1_train.presets import AlgorithmSettings, resolve
from agentr1_train.rollout import update_groups
from agentr1_train.trainer import Run, open_run
from agentr1_train.trajectory import Step, Trajectory, TrajectoryGroup

pytestmark = pytest.mark.once

Make = Callable[..., dict[str, Any]]
B = 4
"""Id of the symbol b."""


def settings_of(recipe: Recipe) -> AlgorithmSettings:
    return resolve(recipe.algorithm, recipe.optimizer)


def played(index: int, *returns: float, length: int = 1) -> TrajectoryGroup:
    def one(member: int, reward: float) -> Trajectory:
        response = (1,) * length
        step = Step((1,), response, (-1.0,) * length, "", "", reward, True, False, "stop", "")
        return Trajectory((step,), "", "", 0, index, member, False, "terminated", "")

    return TrajectoryGroup(index, 0, tuple(one(member, reward) for member, reward in enumerate(returns)))


@pytest.mark.parametrize(
    ("uneven", "rounds", "asked"),
    [
        ({0, 1, 2}, 4, [(0, 3)]),
        ({0, 3, 5}, 4, [(0, 3), (3, 2), (5, 1)]),
        ({0, 3, 5}, 1, [(0, 3), (3, 2)]),
        (set(), 2, [(0, 3), (3, 3), (6, 3)]),
    ],
)
def test_flat_groups_are_played_again_with_other_seeds(uneven: set[int], rounds: int, asked: list[Any]) -> None:
    recipe = recipe_from_dict({"rollout": {"groups": 3}, "algorithm": {"preset": "dapo", "resample_rounds": rounds}})
    calls: list[tuple[int, int]] = []

    def play(first: int, count: int) -> list[TrajectoryGroup]:
        calls.append((first, count))
        return [played(index, 0.0, float(index in uneven)) for index in range(first, first + count)]

    groups, total = enough_groups(play, recipe, settings_of(recipe))
    assert calls == asked
    assert [group.index for group in groups] == list(range(total))
    kept = replace(recipe, algorithm=replace(recipe.algorithm, flat_groups="keep", resample_rounds=None))
    calls.clear()
    enough_groups(play, kept, settings_of(kept))
    assert calls == [(0, 3)]


def test_a_group_that_only_its_lengths_tell_apart_is_not_flat() -> None:
    recipe = recipe_from_dict(
        {"rollout": {"groups": 1, "max_response_tokens": 10}, "algorithm": {"preset": "dapo", "resample_rounds": 1}}
    )
    short, long = played(0, 1.0).trajectories[0], played(0, 1.0, length=10).trajectories[0]
    group = TrajectoryGroup(0, 0, (short, replace(long, member=1)))
    assert enough_groups(lambda first, count: [group], recipe, settings_of(recipe))[1] == 1


def test_groups_are_dealt_over_ranks_by_their_global_index() -> None:
    for first, count in ((0, 5), (5, 3), (8, 1)):
        ranks = [[spec.index for spec in update_groups(0, 1, count, first=first, rank=r, world=2)] for r in range(2)]
        assert sorted(ranks[0] + ranks[1]) == list(range(first, first + count))
        assert all(index % 2 == rank for rank in range(2) for index in ranks[rank])
    whole = {spec.index: spec.seed for spec in update_groups(0, 1, 9)}
    assert [(spec.index, spec.seed) for spec in update_groups(0, 1, 3, first=5)] == [
        (at, whole[at]) for at in (5, 6, 7)
    ]


def test_dapo_resamples_and_leaves_out_what_stayed_flat(symbol_recipe: Make) -> None:
    recipe = recipe_from_dict(
        symbol_recipe(
            rollout={"groups": 3, "group_size": 4, "max_response_tokens": 4},
            env={"kwargs": {"steps": 1}},
            algorithm={"preset": "dapo", "resample_rounds": 2},
        )
    )
    with open_run(recipe) as run:
        collected = run.roll_out(0)
        experience = run.assign_credit(collected, 0)
        assert run.metrics is not None
        count = len(collected.groups)
        assert run.metrics["rollout/resampled_groups"] == count - 3
        assert run.metrics["rollout/groups"] == count
        flat = {
            group.index
            for group in collected.groups
            if len({sum(credit_of(run, item)) for item in group.trajectories}) == 1
        }
        kept = sorted(set(range(count)) - flat)[:3]
        assert sorted({item.group for item in experience.records}) == kept
        assert experience.left_out == set(range(count)) - set(kept)
        run.learn(experience, 0)
        run.write_down(collected, experience, 0)


def credit_of(run: Run, item: Trajectory) -> tuple[float, ...]:
    from agentr1_train.credit_records import paid

    return paid(item, run.recipe, run.settings)


def test_overlong_responses_are_charged_where_they_happen(symbol_recipe: Make) -> None:
    """Responses of one token under a limit of one: all of them are at the limit."""
    recipe = recipe_from_dict(symbol_recipe(algorithm={"overlong_share": 0.5, "kl": "none"}))
    with open_run(recipe) as run:
        collected = run.roll_out(0)
        experience = run.assign_credit(collected, 0)
        items = [item for group in collected.groups for item in group.trajectories]
        for record, item in zip(experience.records, items, strict=True):
            assert record.rewards == tuple(reward - 1.0 for reward in item.rewards)
        assert experience.metrics["credit/overlong"] == -1.0


def test_remax_compares_with_a_greedy_rollout_of_the_same_seed(symbol_recipe: Make) -> None:
    recipe = recipe_from_dict(symbol_recipe(algorithm={"preset": "remax"}, rollout={"groups": 6, "group_size": 3}))
    with open_run(recipe) as run:
        model: Any = run.models.policy.module
        with torch.no_grad():  # always b, when it is greedy; anything, when it samples
            model.model.lm_head.weight.mul_(0.01)
            hidden = model.model.model.norm.weight
            hidden.fill_(1.0)
        run.sampler.load_weights(1, [(name, tensor) for name, tensor in model.model.state_dict().items()])
        collected = run.roll_out(0)
        assert sorted(collected.greedy) == list(range(6))
        for group in collected.groups:
            greedy = collected.greedy[group.index]
            assert greedy.seed == group.seed
            assert greedy.steps[0].prompt_ids == group.trajectories[0].steps[0].prompt_ids
            again = run.collector.sampler  # greedy responses are the likeliest tokens
            assert again.policy_version == 1
        experience = run.assign_credit(collected, 0)
        for record, row in zip(experience.records, experience.credit.advantages, strict=True):
            wanted = record.total_reward - collected.greedy[record.group].total_reward
            assert row == (wanted,) * len(row)
        assert run.metrics is not None
        returns = [item.total_reward for item in collected.greedy.values()]
        assert run.metrics["rollout/greedy_return"] == pytest.approx(sum(returns) / 6)
        trained = {row.trajectory for row in experience.rows}
        assert trained == {(group, member) for group in range(6) for member in range(3)}
        without = run.assign_credit(replace(collected, greedy={0: collected.greedy[0]}), 0)
        assert {item.group for item in without.records} == {0}
        assert without.metrics["credit/dropped_groups"] == 5


def test_greedy_rollouts_repeat_and_sampled_ones_do_not(symbol_recipe: Make) -> None:
    table = symbol_recipe(algorithm={"preset": "remax"}, rollout={"groups": 2, "group_size": 8})
    with open_run(recipe_from_dict(table)) as run:
        first = {index: item.steps for index, item in run.roll_out(0).greedy.items()}
        run.recipe = replace(run.recipe, rollout=replace(run.recipe.rollout, temperature=5.0))
        second = {index: item.steps for index, item in run.roll_out(0).greedy.items()}
    assert [[step.response_ids for step in steps] for steps in first.values()] == [
        [step.response_ids for step in steps] for steps in second.values()
    ]


def test_coherence_is_what_the_reference_engine_says(symbol_recipe: Make) -> None:
    recipe = recipe_from_dict(
        symbol_recipe(
            env={"id": "symbol_env:LayeredSymbol-v0"},
            algorithm={"preset": "layered"},
            rollout={"groups": 2, "group_size": 4, "max_response_tokens": 3},
        )
    )
    with open_run(recipe) as run:
        assert run.models.reference is not None
        weight: Any = run.models.policy.module.model.lm_head.weight  # type: ignore[union-attr]
        with torch.no_grad():
            weight[B].add_(1.0)  # the policy leaves the reference
        collected = run.roll_out(0)
        experience = run.assign_credit(collected, 0)
        reference: Any = run.models.reference._forward
        items = {(item.group, item.member): item for group in collected.groups for item in group.trajectories}
        for record in experience.records:
            assert set(record.parts) == {"env", "sem", "task"}
            for at, step in enumerate(items[record.group, record.member].steps):
                ids = torch.tensor([step.prompt_ids + step.response_ids])
                with torch.no_grad():
                    logits = reference.model(input_ids=ids).logits[0, len(step.prompt_ids) - 1 : -1]
                logp = logits.log_softmax(-1).gather(-1, ids[0, len(step.prompt_ids) :, None]).mean()
                assert record.parts["sem"][at] == pytest.approx(float(logp), abs=1e-4)
                assert record.parts["task"][at] == step.reward_parts["task"]
        run.learn(experience, 0)


def test_a_stream_that_the_environment_does_not_give_is_named(symbol_recipe: Make) -> None:
    recipe = recipe_from_dict(symbol_recipe(algorithm={"preset": "layered"}))
    with open_run(recipe) as run, pytest.raises(ConfigError, match=r"needs the reward part 'env'.*layer_weights says"):
        run.assign_credit(run.roll_out(0), 0)


@pytest.mark.parametrize("estimator", ["token_gae", "bilevel_gae"])
def test_a_critic_at_tokens_trains_under_deepspeed(estimator: str, symbol_recipe: Make) -> None:
    recipe = recipe_from_dict(
        symbol_recipe(
            algorithm={"preset": "ppo", "estimator": estimator},
            rollout={"groups": 2, "group_size": 4, "max_response_tokens": 3},
        )
    )
    with open_run(recipe) as run:
        assert run.models.critic is not None
        head: Any = run.models.critic.module.head
        with torch.no_grad():
            head.bias.fill_(0.5)  # nobody is paid for long responses: it has this to unlearn
        collected = run.roll_out(0)
        experience = run.assign_credit(collected, 0)
        assert all(len(row.token_advantages) == len(row.response_ids) for row in experience.rows)
        assert any(len(row.response_ids) > 1 for row in experience.rows)
        run.learn(experience, 0)
        assert run.metrics is not None
        assert run.metrics["critic/steps"] == sum(len(row.response_ids) for row in experience.rows)
        moved = run.assign_credit(collected, 0)
        assert moved.records[0].token_values != experience.records[0].token_values


def test_a_branching_run_trains_each_step_once(symbol_recipe: Make) -> None:
    branching = {"branch_width": 2, "branch_limit": 3, "branch_probability": 1.0, "branch_surprise": 0.0}
    recipe = recipe_from_dict(
        symbol_recipe(
            env={"kwargs": {"steps": 3}},
            rollout={"groups": 2, "group_size": 2, "max_prompt_tokens": 32} | branching,
        )
    )
    with open_run(recipe) as run:
        collected = run.roll_out(0)
        assert [len(group.trajectories) for group in collected.groups] == [6, 6]
        experience = run.assign_credit(collected, 0)
        # A tree of three over three steps: the first once, the second twice, the third for each.
        assert len(experience.rows) == 4 * (1 + 2 + 3)
        assert len(experience.records) == 12
        run.learn(experience, 0)
        run.write_down(collected, experience, 0)
        assert run.metrics is not None
        assert run.metrics["policy/tokens"] == len(experience.rows)
        assert run.metrics["rollout/tokens"] == len(experience.rows)
        assert run.metrics["rollout/branches"] == 8
        from agentr1_train.tracking import read_rollouts, rollout_path

        read = read_rollouts(rollout_path(run.folder, 1))
        assert [item.origin for item in read[:3]] == [item.origin for item in collected.groups[0].trajectories[:3]]
        assert [item.shared_steps for item in read[:3]] == [0, 1, 2]


def test_defaults_of_the_rollout_are_the_presets() -> None:
    assert RolloutConfig().groups is None
