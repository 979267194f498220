import tracemalloc
from pathlib import Path
from time import process_time
from typing import Any

import agentr1_envs
import pytest
from agentr1_envs.errors import DataNotFoundError, SettingError
from agentr1_envs.webshop.observations import OBSERVATION_MODES, observe
from agentr1_envs.webshop.reward import count_options


def test_traces_of_the_published_environment(golden: Any, small_set: Path, make: Any) -> None:
    traces = golden("traces")
    settings = {"data": small_set, "prices": traces["prices"], "max_steps": 1000}
    envs = {split: make("agentr1/WebShop-v0", split=split, **settings) for split in ("test", "train")}
    played = 0
    for episode in traces["episodes"]:
        number = episode["goal_index"]
        env = envs["test" if number < 500 else "train"]
        info: dict[str, Any] = {}
        for wanted in episode["steps"]:
            if wanted["action"] is None:
                text, info = env.reset(options={"task_id": f"goal-{number}"})
                reward, done = 0.0, False
            else:
                text, reward, done, _, info = env.step(wanted["action"])
            where = (number, wanted["action"])
            assert text == wanted["text"], where
            assert [observe(env._visit, mode) for mode in ("text_rich", "url")] == [
                wanted["text_rich"],
                wanted["url"],
            ], where
            assert (list(info["clickables"]), info["has_search_bar"]) == (
                wanted["clickables"],
                wanted["has_search_bar"],
            ), where
            assert (reward, done) == (wanted["reward"], wanted["done"]), where
            played += 1
        for name, value in (episode["verbose"] or {}).items():
            if value is None:
                assert (info[name], info[f"w{name[1:]}"]) == (1.0, 0.0)
            else:
                assert info[name] == value, (number, name)
    assert played == 293


def test_goals_out_of_reach_are_told(small_set: Path, make: Any) -> None:
    env = make("agentr1/WebShop-v0", data=small_set)
    short = [g for g in env.shop.goals if count_options(g.option_values, g.options) < len(g.options)]
    assert len(short) == 458
    assert all(count_options(g.option_values, g.options, "values") == len(g.options) for g in short)
    mended = make("agentr1/WebShop-v0", data=small_set, option_match="values")
    for goal in [goal for goal in short if goal.index >= 500][::20]:
        task = {"task_id": f"goal-{goal.index}"}
        best = env.reset(options=task)[1]["max_reward"]
        *_, reward, terminated, _, info = [env.step(action) for action in env.demonstration()][-1]
        assert (reward, terminated, info["success"]) == (best, True, False)
        assert best < mended.reset(options=task)[1]["max_reward"] == 1.0


def test_the_expert_gets_what_a_goal_can_pay(small_set: Path, make: Any) -> None:
    env = make("agentr1/WebShop-v0", data=small_set)
    for task_id in env.task_ids[::40]:
        best = env.reset(options={"task_id": task_id})[1]["max_reward"]
        *_, reward, terminated, _, info = [env.step(action) for action in env.demonstration()][-1]
        assert (reward, terminated, info["success"]) == (best, True, best == 1.0), task_id


@pytest.mark.parametrize("mode", OBSERVATION_MODES)
def test_every_mode_shows_every_page(mode: str, make: Any) -> None:
    env = make("agentr1/WebShop-v0", observation_mode=mode, split="test")
    first, _ = env.reset(seed=1)
    texts = [first, *(env.step(action)[0] for action in env.demonstration())]
    assert all(isinstance(text, str) and text for text in texts)
    assert len(set(texts)) >= 4
    assert (len(set(texts)) == len(texts)) == (mode != "text")  # one line does not tell what was chosen
    if mode in ("text", "text_rich"):
        assert env.goal.instruction in first
    if mode == "html":
        assert all("<title>" in text for text in texts)
        assert "<script>" not in env.reset(seed=2)[0]


def test_html_is_escaped(make: Any) -> None:
    env = make("agentr1/WebShop-v0", observation_mode="html")
    env.reset(seed=0)
    page = env.step("search[<script>alert(1)</script> -->]")[0]
    assert "<script>" not in page
    assert page.count("-->") == 1


def test_what_is_no_action_changes_nothing(make: Any) -> None:
    env = make("agentr1/WebShop-v0", max_steps=50)
    first, info = env.reset(seed=0)
    assert info["valid_action"]
    for response in (
        "",
        "hello",
        "search[]",
        "click[search]",
        "click[buy now]",
        "Search[tea]",
        "buy[tea]",
        "search[a\nb]",
    ):
        text, reward, terminated, _, info = env.step(response)
        assert (text, reward, terminated, info["valid_action"]) == (first, 0.0, False, False), response
    assert env.step("search[tea] and more")[4]["valid_action"]


@pytest.mark.parametrize("query", ["<r>", "<q> tea", "<c>beauty", "<a>rubber sole"])
def test_back_doors_are_plain_text(query: str, make: Any) -> None:
    env = make("agentr1/WebShop-v0", observation_mode="url")
    env.reset(seed=0)
    url, _, _, _, info = env.step(f"search[{query}]")
    assert info["page"] == "results"
    assert url.endswith(f"/{query.replace(' ', '+')}/1")


def test_thoughts_may_stand_before_an_action(make: Any) -> None:
    env = make("agentr1/WebShop-v0")
    env.reset(seed=0)
    assert env.step("<think>search[boots]?</think>\nsearch[tea]")[4]["page"] == "results"


def test_a_purchase_without_options(make: Any) -> None:
    env = make("agentr1/WebShop-v0")
    env.reset(seed=0)
    script = env.demonstration()
    for action in (*(a for a in script if a.startswith("search") or a == "click[next >]"), f"click[{env.goal.asin}]"):
        env.step(action)
    *_, info = env.step("click[Buy Now]")
    assert (info["success"], info["r_option"], info["r_att"], info["r_type"]) == (False, 0.0, 1.0, 1.0)
    assert info["reward/task"] == pytest.approx(info["w_att"] + info["w_price"])
    assert (info["asin"], info["end_reason"], info["clickables"]) == (env.goal.asin, "buy now", ())


def test_draws_follow_the_weights(make: Any) -> None:
    env = make("agentr1/WebShop-v0")
    weights = {f"goal-{goal.index}": goal.weight for goal in env.shop.goals}
    total = sum(weights[task_id] for task_id in env.task_ids)
    env.reset(seed=0)
    mean = sum(weights[env.reset()[1]["task_id"]] for _ in range(1500)) / 1500
    expected = sum(weights[task_id] ** 2 for task_id in env.task_ids) / total
    assert mean == pytest.approx(expected, rel=0.05)
    uniform = make("agentr1/WebShop-v0", draw="uniform")
    uniform.reset(seed=0)
    flat = sum(weights[uniform.reset()[1]["task_id"]] for _ in range(1500)) / 1500
    assert flat == pytest.approx(total / len(env.task_ids), rel=0.05)


def test_goals_and_prices_can_be_given(make: Any) -> None:
    asin = make("agentr1/WebShop-v0").shop.catalogue.products[0].asin
    goal = {"asin": asin, "instruction_text": "a shirt, cheap", "attributes": ["long sleeve"], "price_upper": 5.0}
    env = make("agentr1/WebShop-v0", goals=[goal], prices={asin: 6.0}, split="test")
    _, info = env.reset(seed=0)
    assert (info["task_id"], info["max_reward"]) == ("goal-0", 0.5)
    assert [env.step(action) for action in env.demonstration()][-1][4]["r_price"] == 0.0
    cheap = make("agentr1/WebShop-v0", goals=[goal], prices={asin: 5.0})
    assert cheap.reset(seed=0)[1]["max_reward"] == 1.0
    with pytest.raises(SettingError, match="sells no product 'B0'"):
        make("agentr1/WebShop-v0", prices={"B0": 1.0}).reset(seed=0)


def test_environments_share_one_catalogue(small_set: Path, make: Any) -> None:
    first = make("agentr1/WebShop-v0", data=small_set)
    first.reset(seed=0)
    first.demonstration()
    tracemalloc.start()
    try:
        others = [make("agentr1/WebShop-v0", data=small_set) for _ in range(16)]
        for seed, env in enumerate(others):
            env.reset(seed=seed)
            env.step(env.demonstration()[0])
        assert tracemalloc.get_traced_memory()[0] / len(others) < 1e6
    finally:
        tracemalloc.stop()
    assert all(env.shop is first.shop for env in others)


def test_steps_are_quick(small_set: Path, make: Any) -> None:
    env = make("agentr1/WebShop-v0", data=small_set, split="test")
    env.reset(seed=0)
    times: list[float] = []
    for seed in range(40):
        env.reset(seed=seed)
        for action in env.demonstration():
            start = process_time()
            env.step(action)
            times.append(process_time() - start)
    assert sorted(times)[len(times) // 2] < 0.010  # one millisecond is the aim; machines differ


def test_settings_are_checked_at_once(tmp_path: Path, make: Any) -> None:
    for kwargs, kind, message in (
        ({"split": "tset"}, SettingError, "Did you mean 'test'"),
        ({"goals": "humans"}, SettingError, "Did you mean 'human'"),
        ({"goals": []}, SettingError, "holds no goal"),
        ({"observation_mode": "rich"}, SettingError, "text_rich"),
        ({"option_match": "value"}, SettingError, "Did you mean 'values'"),
        ({"draw": "even"}, SettingError, "uniform"),
        ({"data": tmp_path / "nowhere"}, DataNotFoundError, "does not exist"),
        ({"data": tmp_path}, DataNotFoundError, "holds no catalogue.*items_shuffle_1000.json"),
    ):
        with pytest.raises(kind, match=message):
            make("agentr1/WebShop-v0", **kwargs)


def test_it_can_be_evaluated_as_any_environment() -> None:
    result = agentr1_envs.evaluate("agentr1/WebShop-v0", lambda _: "click[back to search]", 2, max_steps=3)
    assert (result.success, result.steps, result.metrics["valid_action"]) == (0.0, 3.0, 0.0)
