from collections import Counter
from typing import Any

from agentr1_envs.samples import small_shop


def test_products_are_a_few_dozen_and_differ() -> None:
    rows = small_shop.products()
    assert 36 <= len(rows) <= 60
    assert len({row["asin"] for row in rows}) == len({row["name"] for row in rows}) == len(rows)
    assert all("*" not in row["name"] and row["title_nouns"] for row in rows)
    assert min(Counter(row["query"] for row in rows).values()) >= 2


def test_every_goal_can_be_reached(make: Any) -> None:
    for split in ("train", "test"):
        env = make("agentr1/WebShop-v0", split=split, data="bundled")
        for task_id in env.task_ids:
            assert env.reset(options={"task_id": task_id})[1]["max_reward"] == 1.0, env.goal.options
            script = env.demonstration()
            assert len(script) <= env.max_steps
            assert [env.step(action) for action in script][-1][4]["success"]


def test_people_ask_too(make: Any) -> None:
    env = make("agentr1/WebShop-v0", goals="human", data="bundled")
    env.reset(seed=0)
    assert env.task.question.startswith("i want to buy ")
    assert [env.step(action) for action in env.demonstration()][-1][1] == 1.0
