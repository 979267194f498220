"""Errors on purpose, as an environment sets them: drawn from the episode's seed, for training only."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from agentr1_envs import Task, TaskSet, ToolEnv
from agentr1_envs.errors import SettingError
from agentr1_envs.gsm8k import gsm8k_oracle
from agentr1_envs.tool_env import EnvTool

TASKS = TaskSet("toy", "train", tuple(Task(f"t{n}", "train", f"What is {n}+1?", (str(n + 1),)) for n in range(40)), "")
RATE = 0.4


def call(expression: str, name: str = "calculator") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {{"expression": "{expression}"}}}}</tool_call>'


@pytest.fixture
def env() -> Iterator[ToolEnv]:
    made = ToolEnv(("calculator",), TASKS, inject_errors=RATE, max_steps=99, tool_timeout=10.0)
    yield made
    made.close()


def failures(env: ToolEnv, seed: int | None, steps: int = 12, calls: int = 2) -> list[tuple[str, ...]]:
    """Codes of each step of an episode, all of whose calls are well written."""
    env.reset(seed=seed)
    return [env.step(call("1+1") + call(f"{step}+{step}") * (calls - 1))[4]["error_codes"] for step in range(steps)]


def test_the_seed_of_the_episode_decides_which_calls_fail(env: ToolEnv) -> None:
    first = failures(env, 5)
    assert failures(env, 5) == first
    assert failures(env, 6) != first
    codes = [code for step in first for code in step]
    assert 3 <= len(codes) <= 18  # 24 calls at 0.4
    assert set(codes) <= {"TIMEOUT", "NETWORK_ERROR", "EXECUTION_ERROR"}


def test_other_episodes_and_the_cache_change_nothing(env: ToolEnv) -> None:
    alone = {seed: failures(env, seed) for seed in range(4)}

    def play(seed: int) -> list[tuple[str, ...]]:
        other = ToolEnv(("calculator",), TASKS, inject_errors=RATE, max_steps=99, tool_timeout=10.0)
        found = failures(other, seed)
        other.close()
        return found

    with ThreadPoolExecutor(8) as pool:
        for seed, found in zip([*alone, *alone], pool.map(play, [*alone, *alone]), strict=True):
            assert found == alone[seed]


def test_the_number_of_the_call_counts_not_the_step_it_is_in(env: ToolEnv) -> None:
    one_a_step = [bool(codes) for codes in failures(env, 3, steps=12, calls=1)]
    two_a_step = failures(env, 3, steps=6, calls=2)
    assert [len(codes) for codes in two_a_step] == [sum(one_a_step[i : i + 2]) for i in range(0, 12, 2)]


def test_later_resets_without_a_seed_have_failures_of_their_own_and_the_tasks_they_would_have(env: ToolEnv) -> None:
    plain = ToolEnv(("calculator",), TASKS, tool_timeout=10.0)
    tasks = [[each.reset(seed=1 if n == 0 else None)[1]["task_id"] for n in range(5)] for each in (env, plain)]
    assert tasks[0] == tasks[1]
    found = [failures(env, seed) for seed in (1, None, None)]
    assert found[0] != found[1] != found[2]
    assert [failures(env, seed) for seed in (1, None, None)] == found
    plain.close()


def test_the_model_and_info_see_an_error_that_pays_nothing() -> None:
    env = ToolEnv(("calculator",), TASKS, inject_errors=1.0, process_reward="success", tool_timeout=10.0)
    env.reset(seed=0)
    text, reward, terminated, _, info = env.step(call("1+1") + "<tool_call>{" + call("1", name="nothing"))
    assert "Error [" in text
    assert (reward, terminated) == (0.0, False)
    assert (info["tool_errors"], info["injected_errors"], info["invalid_calls"], info["invalid_steps"]) == (3, 1, 2, 0)
    assert info["error_codes"][1:] == ("PARSE_ERROR", "UNKNOWN_TOOL")  # what is wrong anyway keeps its own error
    _, info = env.reset(seed=0)
    assert info["injected_errors"] == 0
    env.close()


def test_without_the_setting_nothing_fails() -> None:
    env = ToolEnv(("calculator",), TASKS, max_steps=99, tool_timeout=10.0)
    assert env.training_only == ()
    assert failures(env, 5) == [()] * 12
    env.close()


def test_what_the_environment_answers_itself_does_not_fail() -> None:
    env = gsm8k_oracle(data="bundled", inject_errors=1.0)
    env.reset(seed=0)
    asked = '<tool_call>{"name": "check_answer", "arguments": {"answer": "7"}}</tool_call>'
    assert env.step(asked + call("1+1"))[4]["injected_errors"] == 1
    env.close()


def test_a_tool_that_was_given_as_an_object_may_fail() -> None:
    def answer(params: dict[str, Any]) -> dict[str, Any]:
        return {"status": "success", "data": 1}

    given = EnvTool("look", "Look.", {"type": "object", "properties": {}}, answer)
    env = ToolEnv([given, "calculator"], TASKS, inject_errors=1.0)
    env.reset(seed=0)
    asked = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    assert env.step(asked + call("1+1"))[4]["injected_errors"] == 2
    env.close()


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_is_a_probability(rate: float) -> None:
    with pytest.raises(SettingError, match="inject_errors"):
        ToolEnv(("calculator",), TASKS, inject_errors=rate)
