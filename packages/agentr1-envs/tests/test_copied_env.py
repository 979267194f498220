"""Episodes of environments with tools, put aside and taken up elsewhere: all of the episode goes along, or nothing."""

import json
from typing import Any

import pytest
from agentr1_envs import Task, TaskSet, ToolEnv
from agentr1_envs.agent_env import Turn
from agentr1_envs.errors import SettingError, UnknownTaskError
from agentr1_tools import BaseTool

TASKS = TaskSet(
    "toy", "train", (Task("a", "train", "What is 2+3?", ("5",)), Task("b", "train", "What is 1+1?", ("2",))), "here"
)


def call(expression: str) -> str:
    return f'<tool_call>{{"name": "calculator", "arguments": {{"expression": "{expression}"}}}}</tool_call>'


SCRIPT = [call("1+1"), call("2+"), call("2+3"), call("4+4"), "<answer>5</answer>"]


class Purse(BaseTool):
    """Remembers what it was given."""

    name, description = "purse", "Put a coin in."
    parameters = {"type": "object", "properties": {}}  # noqa: RUF012

    def execute(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"status": "success", "data": None}


class CountingEnv(ToolEnv):
    """Keeps a number that nobody is told of."""

    def advance(self, action: str) -> Turn:
        self.mine = getattr(self, "mine", 0) + 1
        return super().advance(action)


class TellingEnv(CountingEnv):
    """Tells."""

    def own_state(self) -> dict[str, Any]:
        return {**super().own_state(), "mine": self.mine}

    def take_own_state(self, state: dict[str, Any]) -> None:
        super().take_own_state(state)
        self.mine = state["mine"]


def make(kind: type[ToolEnv] = ToolEnv, **settings: Any) -> Any:
    return kind(["calculator"], TASKS, observation="messages", max_invalid=3, **settings)


@pytest.mark.parametrize("settings", [{}, {"inject_errors": 0.5}, {"history": 2}], ids=str)
@pytest.mark.parametrize("kind", [ToolEnv, TellingEnv])
@pytest.mark.parametrize("at", [1, 3])
def test_it_goes_on_as_the_original_does(kind: type[ToolEnv], settings: dict[str, Any], at: int) -> None:
    env, other = make(kind, **settings), make(kind, **settings)
    env.reset(seed=5, options={"task_id": "a"})
    for action in SCRIPT[:at]:
        env.step(action)
    state = json.loads(json.dumps(env.get_state()))
    rest = [env.step(action) for action in SCRIPT[at:]]
    other.set_state(state)  # an environment that never was reset
    assert [other.step(action) for action in SCRIPT[at:]] == rest
    assert rest[-1][4]["success"]
    assert rest[-1][4]["tool_calls"] == 4
    assert (rest[-1][4]["injected_errors"] > 0) == ("inject_errors" in settings)
    env.set_state(state)
    assert env.step(SCRIPT[at]) == rest[0]
    if kind is TellingEnv:
        assert env.mine == at + 1


def test_what_no_data_stands_for_is_not_copied() -> None:
    """A tool that was given as it is may remember; a class may keep what it does not tell."""
    for env in (ToolEnv(["calculator", Purse()], TASKS), make(CountingEnv)):
        env.reset(seed=0)
        assert env.get_state() is None
    for env in (make(), make(TellingEnv)):
        env.reset(seed=0)
        env.step(SCRIPT[0])
        assert env.get_state() is not None


def test_what_is_no_state_is_refused() -> None:
    env = make()
    env.reset(seed=0)
    state = env.get_state()
    with pytest.raises(UnknownTaskError):
        env.set_state({**state, "task_id": "c"})
    for name in state:
        with pytest.raises(SettingError, match=r"none that get_state\(\) gave"):
            env.set_state({key: value for key, value in state.items() if key != name})
