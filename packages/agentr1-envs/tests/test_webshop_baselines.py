from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.webshop.baselines import baseline_score, instruction_of, random_policy, rule_policy


def test_the_rule_buys_the_first_product(make: Any) -> None:
    env = make("agentr1/WebShop-v0", split="test")
    score = baseline_score(env, rule_policy, env.task_ids[:10])
    assert 30 < score.score < 100
    assert score.episodes == 10


def test_the_rule_goes_on_where_nothing_is_found(make: Any) -> None:
    env = make("agentr1/WebShop-v0")
    env.reset(seed=0)
    observation, _, _, _, info = env.step("search[zzz]")
    assert rule_policy(observation, info) == "click[back to search]"
    assert instruction_of(observation) == env.goal.instruction


def test_chance_is_the_same_for_the_same_seed(make: Any) -> None:
    env = make("agentr1/WebShop-v0", split="test")
    scores = [baseline_score(env, random_policy(seed), env.task_ids[:20]) for seed in (1, 1, 2)]
    assert scores[0] == scores[1] != scores[2]


@pytest.mark.slow
def test_scores_on_the_benchmarks_test_goals(small_set: Path, make: Any) -> None:
    env = make("agentr1/WebShop-v0", data=small_set, split="test")
    rule = baseline_score(env, rule_policy, env.task_ids)
    assert rule.score == pytest.approx(57.1, abs=3)
    assert rule.success == pytest.approx(2.2, abs=1)
    chances = [baseline_score(env, random_policy(seed), env.task_ids) for seed in range(4)]
    assert sum(chance.score for chance in chances) / 4 == pytest.approx(8, abs=1)
    assert sum(chance.success for chance in chances) / 4 == pytest.approx(0, abs=1)
