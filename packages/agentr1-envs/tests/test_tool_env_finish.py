"""The tool `finish` in a ToolEnv: a lone call of it is the answer."""

from typing import Any

import pytest
from agentr1_envs import Task, TaskSet, ToolEnv

TASKS = TaskSet("toy", "train", (Task("sum", "train", "What is 2+3?", ("5",)),), "here")
ADD = '<tool_call>calculator("2+3")</tool_call>'
FINISH = '<tool_call>{"name": "finish", "arguments": {"answer": "5"}}</tool_call>'


@pytest.fixture(params=["hermes", "react"])
def env(request: Any) -> Any:
    env = ToolEnv(["calculator", "finish"], TASKS, format=request.param, tool_timeout=10.0)
    env.reset(seed=0)
    yield env
    env.close()


def test_it_stands_among_the_tools_the_model_is_told_of(env):
    assert "finish" in env.system_prompt
    assert [schema["function"]["name"] for schema in env.tool_schemas] == ["calculator", "finish"]


def test_a_lone_call_ends_the_episode_and_is_scored(env):
    response = FINISH if env.settings.format == "hermes" else "Action: finish[5]"
    _, reward, terminated, truncated, info = env.step(response)
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert (info["success"], info["prediction"], info["end_reason"]) == (True, "5", "answer")


@pytest.mark.parametrize("env", ["hermes"], indirect=True)
@pytest.mark.parametrize("response", [ADD + FINISH, FINISH + ADD, FINISH + FINISH])
def test_beside_other_calls_it_waits(env, response):
    observation, reward, terminated, _, info = env.step(response)
    assert (reward, terminated, info["tool_errors"]) == (0.0, False, 0)
    assert "call finish alone" in observation
    assert env.step(FINISH)[4]["success"]


@pytest.mark.parametrize("env", ["hermes"], indirect=True)
def test_a_call_without_an_answer_is_feedback(env):
    observation, _, terminated, _, info = env.step('<tool_call>{"name": "finish", "arguments": {}}</tool_call>')
    assert not terminated
    assert info["error_codes"] == ("INVALID_ARGUMENT",)
    assert "answer" in observation
