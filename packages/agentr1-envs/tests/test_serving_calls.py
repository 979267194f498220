from typing import Any

import gymnasium
import pytest
import served_toys
from agentr1_envs.errors import WireError
from agentr1_envs.serving.calls import answer, describe
from agentr1_envs.wire import loads


def ask(env: Any, **asked: Any) -> dict[str, Any]:
    return loads(answer(env, {"number": 1, **asked}))


def test_a_description_names_what_there_is_and_loads_nothing() -> None:
    env = gymnasium.make("agentr1/GSM8K-v0")
    told = describe(env)
    assert told["observation_space"] == {"space": "Text", "max_length": None, "min_length": 0}
    assert set(told["methods"]) == {"demonstration", "get_state", "set_state"}
    assert {"system_prompt", "tool_schemas", "tools_in_template", "stop", "task_ids"} <= set(told["values"])
    assert told["metadata"] == {"render_modes": ["ansi"], "render_fps": 1}
    assert "tasks" not in vars(env.unwrapped)  # asking whether there are task ids must not load the tasks


def test_names_are_found_through_wrappers() -> None:
    env = gymnasium.wrappers.TimeLimit(served_toys.Stranger(), 3)
    assert set(describe(env)["values"]) == {"system_prompt", "tool_schemas", "stop"}
    assert set(describe(env)["methods"]) == {"get_state", "set_state"}


def test_an_environment_that_is_not_text_is_refused() -> None:
    with pytest.raises(WireError, match="cannot be served"):
        describe(gymnasium.make("CartPole-v1"))


def test_answers_are_what_the_environment_returns() -> None:
    env, twin = served_toys.Stranger(), served_toys.Stranger()
    first = ask(env, do="reset", seed=3, options={"x": (1, 2)})["result"]
    observation, info = twin.reset(seed=3, options={"x": (1, 2)})
    assert (first["observation"], first["rng"]) == (observation, None)
    assert {name: type(value) for name, value in first["info"].items()} == {n: type(v) for n, v in info.items()}
    told = ask(env, do="step", action="go")["result"]
    assert (told["observation"], told["reward"], told["terminated"], told["truncated"]) == twin.step("go")[:4]
    assert ask(env, do="render")["result"] == {"value": "rendered 1"}
    assert ask(env, do="get", name="system_prompt")["result"] == {"value": "count 1"}
    assert ask(env, do="get", name="get_state")["result"] == {"value": {"count": 1}}
    ask(env, do="set_state", state={"count": 7})
    assert ask(env, do="get", name="system_prompt")["result"] == {"value": "count 7"}


def test_an_unseeded_reset_can_be_repeated_elsewhere() -> None:
    env = served_toys.Stranger()
    ask(env, do="reset", seed=3, options=None)
    ask(env, do="step", action="go")
    first = ask(env, do="reset", seed=None, options=None)["result"]
    then = ask(env, do="step", action="go")["result"]["observation"]
    other = served_toys.Stranger()
    again = ask(other, do="reset", seed=None, options=None, rng=first["rng"])["result"]
    assert again["observation"] == first["observation"]
    assert again["rng"] == first["rng"]
    assert ask(other, do="step", action="go")["result"]["observation"] == then


@pytest.mark.parametrize(
    ("asked", "kind", "text"),
    [
        ({"do": "step", "action": "key name"}, "builtins.KeyError", "'name'"),
        ({"do": "step", "action": "odd one"}, "served_toys.OddError", "one"),
        ({"do": "step", "action": "exit"}, "builtins.SystemExit", "3"),
        (
            {"do": "step", "action": "object"},
            "agentr1_envs.errors.WireError",
            "the answer of the environment holds obj",
        ),
        ({"do": "get", "name": "tool_schemas"}, "builtins.AttributeError", "none today"),
        ({"do": "get", "name": "__class__"}, "agentr1_envs.errors.WireError", "nothing of this form to ask"),
        ({"do": "get", "name": "_log"}, "agentr1_envs.errors.WireError", "nothing of this form to ask"),
        ({"do": "close"}, "agentr1_envs.errors.WireError", "nothing of this form to ask"),
        ({}, "agentr1_envs.errors.WireError", "nothing of this form to ask"),
    ],
)
def test_what_goes_wrong_is_an_answer(asked: dict[str, Any], kind: str, text: str) -> None:
    env = served_toys.Stranger()
    env.reset(seed=0)
    told = ask(env, **asked)
    assert (told["number"], told["final"], told["error"]["classes"][0]) == (1, False, kind)
    assert text in told["error"]["text"]
    assert ask(env, do="step", action="go")["result"]["observation"].startswith("go ")
