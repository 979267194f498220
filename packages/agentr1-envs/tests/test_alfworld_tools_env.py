import json
from typing import Any

import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.spaces import Messages

ID = "agentr1/ALFWorldTools-v0"


def call(command: str) -> str:
    return f"<tool_call>{json.dumps({'name': 'env_step', 'arguments': {'command': command}})}</tool_call>"


def test_the_state_is_written_anew_at_each_step(make: Any) -> None:
    env = make(ID, last_actions=2)
    assert isinstance(env.observation_space, Messages)
    observation, info = env.reset(seed=0)
    assert [message["role"] for message in observation] == ["system", "user"]
    assert '"env_step"' in observation[0]["content"]
    assert "<answer>" not in observation[0]["content"]
    state = observation[1]["content"]
    assert state.startswith(f"Task: {env.task.question}\n\nObservation: ")
    assert state.count(env.task.question) == 1
    assert "Last actions: none" in state
    for command in ("look", "inventory", "help"):
        observation, _, _, _, info = env.step(call(command))
    state = observation[1]["content"]
    assert "Last actions: inventory; help\n" in state
    shown = state.partition("Admissible commands:\n")[2].split("\n")
    assert shown == [command for command in info["admissible_commands"] if command != "help"]
    assert (info["tool_calls"], info["tool_errors"], info["valid_action"]) == (3, 0, True)


def test_what_is_wrong_is_told_and_counts_as_a_step(make: Any) -> None:
    env = make(ID, max_steps=9, max_invalid=9)
    env.reset(seed=0)
    for response, told in (
        ("I would look around.", "No call of env_step"),
        (call("dance"), "Nothing happens."),
        (call("look").replace("env_step", "env_stop"), "env_step"),
        (call("look").replace("command", "comand"), "command"),
    ):
        observation, reward, terminated, _, info = env.step(response)
        assert told in observation[-1]["content"].partition("Last actions")[0]
        assert (reward, terminated, info["valid_action"]) == (0.0, False, False)
    assert (info["steps"], info["invalid_calls"]) == (4, 2)
    _, _, _, _, info = env.step(call("look") + call("inventory"))
    assert (info["valid_action"], info["error_codes"]) == (True, ("CALL_LIMIT",))


def test_a_win_ends_the_episode_and_pays_one(make: Any) -> None:
    env = make(ID)
    env.reset(seed=3)
    seen = [env.step(response) for response in env.demonstration()]
    assert [step[1] for step in seen] == [0.0] * (len(seen) - 1) + [1.0]
    _, _, terminated, truncated, info = seen[-1]
    assert (terminated, truncated, info["success"], info["end_reason"]) == (True, False, True, "won")


def test_an_episode_can_be_put_aside_and_taken_up(make: Any) -> None:
    env, other = make(ID), make(ID)
    env.reset(seed=5)
    script = env.demonstration()
    env.step(script[0])
    state = json.loads(json.dumps(env.get_state()))
    other.set_state(state)
    assert [env.step(response) for response in script[1:]] == [other.step(response) for response in script[1:]]


def test_settings_without_effect_are_refused(make: Any) -> None:
    for kwargs in (
        {"history": 3},
        {"observation": "text"},
        {"last_actions": -1},
        {"dialect": "1"},
        {"max_calls_per_step": 2},
    ):
        with pytest.raises(SettingError):
            make(ID, **kwargs)
