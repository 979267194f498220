"""Every id through `gymnasium.make_vec`, in every way there is: the episodes are those of single environments."""

import multiprocessing
from collections.abc import Iterator
from typing import Any

import agentr1_envs
import gymnasium
import numpy as np
import pytest
from agentr1_envs.errors import SettingError, SharedMemoryError
from agentr1_envs.vector import ThreadVectorEnv, entry_points
from agentr1_envs.wrappers import WindowContext
from gymnasium.vector import AsyncVectorEnv

pytestmark = pytest.mark.once

ALONE = [env_id for env_id in agentr1_envs.ENTRY_POINTS if env_id != "agentr1/Remote-v0"]
"""Ids that need no server; vectors of the one that does are in test_remote_env.py."""

WAYS: dict[str, dict[str, Any]] = {
    "sync": {"vectorization_mode": "sync"},
    "threads": {"vectorization_mode": "vector_entry_point"},
    "fork": {"vectorization_mode": "async", "vector_kwargs": {"shared_memory": False, "context": "fork"}},
}
SPAWN = {"vectorization_mode": "async", "vector_kwargs": {"shared_memory": False, "context": "spawn"}}
SEEDS = [5, 6]
STEPS = 12


def actions(script: list[str]) -> Iterator[str]:
    """What an expert who errs plays: nonsense first, then what solves the task."""
    yield '<tool_call>{"name": "x"}</tool_call> é\n'
    yield from script


def alone(env: gymnasium.Env[Any, Any], seed: int) -> list[tuple[Any, ...]]:
    """What one environment returns over two episodes, the second drawn on; a reset stands as a step does."""
    observation, info = env.reset(seed=seed)
    seen: list[tuple[Any, ...]] = [(observation, info)]
    going_on = actions(env.get_wrapper_attr("demonstration")())
    over = False
    for _ in range(STEPS):
        if over:
            observation, info = env.reset()
            seen.append((observation, 0.0, False, False, info))
            going_on, over = actions(env.get_wrapper_attr("demonstration")()), False
            continue
        seen.append(env.step(next(going_on, "look")))
        over = seen[-1][2] or seen[-1][3]
    return seen


def together(envs: gymnasium.vector.VectorEnv) -> list[list[tuple[Any, ...]]]:
    """The same from a vector, by environment."""
    observations, infos = envs.reset(seed=SEEDS)
    seen: list[list[tuple[Any, ...]]] = [[(observations[i], of_one(infos, i))] for i in range(2)]
    scripts = [actions(script) for script in envs.call("demonstration")]
    over = [False, False]
    for _ in range(STEPS):
        answers = envs.step(tuple("" if over[i] else next(scripts[i], "look") for i in range(2)))
        fresh = envs.call("demonstration") if any(over) else ((), ())
        for i in range(2):
            observation, reward, terminated, truncated = (answer[i] for answer in answers[:4])
            seen[i].append((observation, reward, terminated, truncated, of_one(answers[4], i)))
            scripts[i] = actions(fresh[i]) if over[i] else scripts[i]
            over[i] = bool(terminated or truncated)
    return seen


def of_one(infos: dict[str, Any], index: int) -> dict[str, Any]:
    """The info of one environment out of those of a vector."""
    return {name: infos[name][index] for name in infos if not name.startswith("_") and infos[f"_{name}"][index]}


@pytest.mark.parametrize("way", WAYS)
def test_a_vector_plays_the_episodes_of_single_environments(any_env: tuple[str, dict[str, Any]], way: str) -> None:
    _compare(any_env[0], any_env[1], WAYS[way])


@pytest.mark.parametrize("env_id", ALONE)
def test_so_does_one_whose_workers_are_spawned(env_id: str) -> None:
    _compare(env_id, {}, SPAWN)


def _compare(env_id: str, kwargs: dict[str, Any], way: dict[str, Any]) -> None:
    singles = [gymnasium.make(env_id, **kwargs) for _ in SEEDS]
    expected = [alone(env, seed) for env, seed in zip(singles, SEEDS, strict=True)]
    envs = gymnasium.make_vec(env_id, num_envs=2, **way, **kwargs)
    found = together(envs)
    envs.close()
    for env in singles:
        env.close()
    assert found == expected
    assert all(isinstance(step[0], str | tuple) for steps in found for step in steps)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("env_id", ALONE)
def test_shared_memory_raises_with_the_remedy(env_id: str) -> None:
    with pytest.raises(SharedMemoryError, match=r'vector_kwargs=\{"shared_memory": False\}'):
        gymnasium.make_vec(env_id, num_envs=2, vectorization_mode="async")
    assert multiprocessing.active_children() == []


def test_spawned_workers_know_an_id_that_names_its_module() -> None:
    envs = AsyncVectorEnv(
        [lambda: WindowContext(gymnasium.make("agentr1_envs:agentr1/GSM8K-v0", split="test"), 2)] * 2,
        shared_memory=False,
        context="spawn",
    )
    observations, _ = envs.reset(seed=1)
    envs.close()
    single = WindowContext(gymnasium.make("agentr1/GSM8K-v0", split="test"), 2)
    assert observations == (single.reset(seed=1)[0], single.reset(seed=2)[0])


@pytest.mark.parametrize("way", WAYS)
def test_the_final_observation_is_kept_over_an_autoreset(way: str) -> None:
    chosen = dict(WAYS[way])
    if way == "threads":
        chosen["autoreset_mode"] = "SameStep"
    else:
        chosen["vector_kwargs"] = {**chosen.get("vector_kwargs", {}), "autoreset_mode": "SameStep"}
    envs = gymnasium.make_vec("agentr1/GSM8K-v0", num_envs=2, max_steps=1, **chosen)
    call = '<tool_call>{"name": "calculator", "arguments": {"expression": "6*7"}}</tool_call>'
    envs.reset(seed=1)
    observations, _, terminated, truncated, info = envs.step((call, "<answer>1</answer>"))
    assert (terminated.tolist(), truncated.tolist()) == ([False, True], [True, False])
    assert "42" in info["final_obs"][0]
    assert observations[0] != info["final_obs"][0]
    assert info["final_info"]["end_reason"].tolist() == ["max_steps", "answer"]
    assert info["final_info"]["success"].tolist() == [False, False]
    envs.close()


@pytest.mark.parametrize("env_id", ALONE)
def test_environments_of_a_vector_share_the_tasks(env_id: str) -> None:
    envs = gymnasium.make_vec(env_id, 3)
    first, *others = envs.get_attr("tasks")
    assert all(tasks is first for tasks in others)
    envs.close()


def test_a_vector_is_the_one_of_the_entry_point_and_its_spec_makes_it_again() -> None:
    envs = gymnasium.make_vec("agentr1/HotpotQA-v0", 2, mode="react", step_timeout_s=30.0)
    assert isinstance(envs, ThreadVectorEnv)
    assert envs.step_timeout_s == 30.0
    assert envs.spec is not None
    again = gymnasium.make_vec(gymnasium.envs.registration.EnvSpec.from_json(envs.spec.to_json()))
    assert again.num_envs == 2
    np.testing.assert_equal(again.reset(seed=4), envs.reset(seed=4))
    envs.close()
    again.close()


def test_an_id_of_ones_own_gets_a_vector_by_its_text() -> None:
    gymnasium.register(
        "mine/Window-v0",
        entry_point=lambda **kwargs: WindowContext(gymnasium.make("agentr1/GSM8K-v0", **kwargs), 2),
        vector_entry_point="agentr1_envs.vector.entry_points:mine/Window-v0",
    )
    try:
        envs = gymnasium.make_vec("mine/Window-v0", 2, vectorization_mode="vector_entry_point", split="test")
        assert envs.reset(seed=1)[0][0][0]["role"] == "system"
        envs.close()
    finally:
        del gymnasium.registry["mine/Window-v0"]


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(SettingError, match="num_envs=0"):
        gymnasium.make_vec("agentr1/GSM8K-v0", 0)
    with pytest.raises(SettingError, match="Did you mean 'max_steps'"):
        gymnasium.make_vec("agentr1/GSM8K-v0", 2, max_step=3)
    with pytest.raises(AttributeError, match="thread_vectors"):
        entry_points.thread_vectors  # noqa: B018
