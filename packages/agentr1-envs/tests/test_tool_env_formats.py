"""A whole episode in every call format: the scripted expert succeeds, and a broken call is feedback."""

from typing import Any

import pytest
from agentr1_envs import Task, TaskSet, ToolEnv
from agentr1_tools import available_formats

FORMATS = sorted(name for name, info in available_formats().items() if info.distribution == "agentr1-tools")
TASKS = TaskSet("toy", "train", (Task("sum", "train", "What is 2+3, doubled?", ("10",), plan=("2+3", "5*2")),), "here")
BROKEN = {
    "llama3": '{"name": "calculator", "parameters": {',
    "mistral": "[TOOL_CALLS][{",
    "pythonic": "[calculator(2+3)]",
    "harmony": "<|channel|>commentary to=functions.calculator<|message|>{",
    "react": "Action: calculate 2+3",
    "tags": "<calculator>2+3",
}


@pytest.fixture
def env(request: pytest.FixtureRequest) -> Any:
    """An environment with the calculator that calls in the format named by the parameter."""
    made = ToolEnv(("calculator",), TASKS, format=request.param, tool_timeout=10.0)  # the tests share the machine
    made.reset(seed=0)
    yield made
    made.close()


def test_there_are_nine() -> None:
    assert len(FORMATS) == 9


@pytest.mark.parametrize("env", FORMATS, indirect=True)
def test_the_scripted_expert_succeeds(env: Any) -> None:
    *calls, answer = env.demonstration()
    assert len(calls) == 2
    for call, result in zip(calls, ("5", "10"), strict=True):
        observation, _, terminated, _, info = env.step(f"I calculate.\n{call}")
        assert (terminated, info["error_codes"]) == (False, ())
        assert result in observation
    _, reward, terminated, _, info = env.step(answer)
    assert (reward, terminated, info["success"], info["tool_calls"]) == (1.0, True, True, 2)


@pytest.mark.parametrize("env", FORMATS, indirect=True)
def test_a_broken_call_is_feedback_and_stops_are_the_formats_own(env: Any) -> None:
    broken = BROKEN.get(env.settings.format, "<tool_call>calculator")
    observation, _, terminated, _, info = env.step(broken)
    assert (terminated, info["error_codes"], info["invalid_steps"]) == (False, ("PARSE_ERROR",), 1)
    assert "PARSE_ERROR" in observation
    assert env.stop[0] == "</answer>"
    assert env.stop[1].strip() in observation
    assert "calculator" in env.system_prompt


@pytest.mark.parametrize(
    ("env", "call"),
    [
        ("react", "Action: calculator[2+3]"),
        ("tags", "<calculator>2+3</calculator>"),
        ("call", '<tool_call>calculator(expression="2+3")</tool_call>'),
    ],
    indirect=["env"],
)
def test_the_expert_writes_the_usual_form(env: Any, call: str) -> None:
    assert env.demonstration()[0] == call


@pytest.mark.parametrize("env", ["react"], indirect=True)
def test_finish_is_an_answer(env: Any) -> None:
    assert env.step("Thought: known.\nAction: finish[10]")[4]["success"] is True
