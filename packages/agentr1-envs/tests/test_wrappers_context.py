"""What the model sees at each step, message by message."""

import gc
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import pytest
from agentr1_envs import AgentEnv, Task, TaskSet, Turn
from agentr1_envs.errors import SettingError
from agentr1_envs.spaces import Messages, Text
from agentr1_envs.wrappers import (
    AppendContext,
    Exchange,
    FirstAndLastContext,
    MarkovContext,
    SummaryContext,
    WindowContext,
)
from gymnasium.utils.env_checker import check_env

TASKS = TaskSet("toy", "train", (Task("t", "train", "go", ("x",)),), "here")


class Counting(AgentEnv):
    """Answers step n with `n`."""

    @property
    def system_prompt(self) -> str:
        return "system"

    def begin(self, task: Task) -> str:
        self.count = 0
        return task.question

    def advance(self, action: str) -> Turn:
        self.count += 1
        return Turn(str(self.count))


class Stranger(gymnasium.Env[str, str]):
    """Nothing of this project."""

    observation_space = gymnasium.spaces.Text(100)
    action_space = gymnasium.spaces.Text(100)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return "hello", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return f"heard {action}", 0.0, False, False, {}


def told(observation: Sequence[dict[str, str]]) -> str:
    """A conversation on one line: the first letter of each role, and the content."""
    return " | ".join(f"{message['role'][0]}:{message['content']}" for message in observation)


def seen(env: gymnasium.Env[Any, Any], actions: str = "abcd") -> list[str]:
    """What the model sees at reset and after each action, the system message aside."""
    observations = [env.reset(seed=0)[0], *(env.step(action)[0] for action in actions)]
    for observation in observations:
        assert observation in env.observation_space
        assert observation[0] == {"role": "system", "content": "system"}
    return [told(observation[1:]) for observation in observations]


def counting() -> Counting:
    return Counting(TASKS, max_steps=9)


def test_append_shows_everything() -> None:
    assert seen(AppendContext(counting())) == [
        "u:go",
        "u:go | a:a | u:1",
        "u:go | a:a | u:1 | a:b | u:2",
        "u:go | a:a | u:1 | a:b | u:2 | a:c | u:3",
        "u:go | a:a | u:1 | a:b | u:2 | a:c | u:3 | a:d | u:4",
    ]


def test_append_and_window_are_what_the_environments_own_messages_are() -> None:
    own = seen(Counting(TASKS, max_steps=9, observation="messages"))
    assert seen(AppendContext(counting())) == own
    own = seen(Counting(TASKS, max_steps=9, observation="messages", history=2))
    assert seen(WindowContext(counting(), 2)) == own


def test_a_window_keeps_the_opening_and_the_last_steps() -> None:
    assert seen(WindowContext(counting(), 2))[2:] == [
        "u:go | a:a | u:1 | a:b | u:2",
        "u:go | a:b | u:2 | a:c | u:3",
        "u:go | a:c | u:3 | a:d | u:4",
    ]
    assert seen(WindowContext(counting(), 0)) == ["u:go"] * 5


def test_the_first_and_the_last_steps_with_a_note_between() -> None:
    assert seen(FirstAndLastContext(counting(), first=1, last=2), "abcde") == [
        "u:go",
        "u:go | a:a | u:1",
        "u:go | a:a | u:1 | a:b | u:2",
        "u:go | a:a | u:1 | a:b | u:2 | a:c | u:3",
        "u:go | a:a | u:1\n\n[1 steps left out] | a:c | u:3 | a:d | u:4",
        "u:go | a:a | u:1\n\n[2 steps left out] | a:d | u:4 | a:e | u:5",
    ]
    assert seen(FirstAndLastContext(counting(), first=0, last=1, note="({count})"))[-1] == "u:go\n\n(3) | a:d | u:4"
    assert seen(FirstAndLastContext(counting(), first=1, last=1, note=""))[-1] == "u:go | a:a | u:1 | a:d | u:4"


def test_a_summary_takes_in_each_step_once_as_it_leaves() -> None:
    asked: list[tuple[str, str]] = []

    def summarise(summary: str, step: Exchange) -> str:
        asked.append((summary, step.action))
        return f"{summary}{step.action}{step.feedback};"

    assert seen(SummaryContext(counting(), summarise, steps=2, heading="Before:")) == [
        "u:go",
        "u:go | a:a | u:1",
        "u:go | a:a | u:1 | a:b | u:2",
        "u:go\n\nBefore:\na1; | a:b | u:2 | a:c | u:3",
        "u:go\n\nBefore:\na1;b2; | a:c | u:3 | a:d | u:4",
    ]
    assert asked == [("", "a"), ("a1;", "b")]
    assert seen(SummaryContext(counting(), summarise, steps=0))[1].endswith("\na1;")


def test_markov_writes_the_state_anew() -> None:
    assert seen(MarkovContext(counting())) == ["u:go", "u:1", "u:2", "u:3", "u:4"]

    def state(opening: str, steps: Sequence[Exchange]) -> str:
        return f"{opening} after {''.join(step.action for step in steps) or 'nothing'}"

    assert seen(MarkovContext(counting(), state)) == [
        "u:go after nothing",
        "u:go after a",
        "u:go after ab",
        "u:go after abc",
        "u:go after abcd",
    ]


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "append": AppendContext,
    "window": lambda env: WindowContext(env, 2),
    "first_and_last": FirstAndLastContext,
    "summary": lambda env: SummaryContext(env, lambda summary, step: summary + step.action),
    "markov": MarkovContext,
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_every_wrapper_forgets_at_reset_and_keeps_the_environments_offers(name: str) -> None:
    env = WRAPPERS[name](gymnasium.make("agentr1/GSM8K-v0"))
    first = env.reset(seed=3)[0]
    assert env.step("<answer>nonsense</answer>")[2]
    assert env.reset(seed=3)[0] == first
    assert isinstance(env.observation_space, Messages)
    assert isinstance(env.action_space, Text)
    assert first[0]["content"] == env.get_wrapper_attr("system_prompt")
    assert env.get_wrapper_attr("tool_schemas")
    assert env.get_wrapper_attr("task_ids")
    for response in env.get_wrapper_attr("demonstration")():
        *_, info = env.step(response)
    assert info["success"]


@pytest.mark.parametrize("name", WRAPPERS)
def test_what_is_seen_is_messages_that_the_reader_may_change(name: str) -> None:
    env, twin = WRAPPERS[name](counting()), WRAPPERS[name](counting())
    shown, expected = env.reset(seed=0)[0], twin.reset(seed=0)[0]
    for action in "abcdef":
        assert shown == expected
        assert shown in Messages()
        for message in shown:
            message["content"] = "changed by the reader"
        shown, expected = env.step(action)[0], twin.step(action)[0]


@pytest.mark.parametrize("name", ["window", "first_and_last", "markov", "summary"])
def test_a_long_episode_takes_no_more_memory_than_what_is_shown(name: str) -> None:
    if name == "summary":
        env = SummaryContext(Stranger(), lambda summary, step: step.action)
    else:
        env = WRAPPERS[name](Stranger())
    env.reset(seed=0)
    gc.collect()
    before = sum(type(thing) is Exchange for thing in gc.get_objects())
    sizes = {sum(len(message["content"]) for message in env.step(f"{step:06}")[0]) for step in range(5000)}
    kept = sum(type(thing) is Exchange for thing in gc.get_objects()) - before
    assert 1 <= kept <= 4
    assert max(sizes) < 200


def test_the_system_text_of_a_task_is_read_when_it_begins() -> None:
    class Moody(Stranger):
        system_prompt = ""

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
            self.system_prompt = "" if options is None else options["mood"]
            return super().reset(seed=seed)

    env = AppendContext(Moody())
    assert [told(env.reset(options=options)[0]) for options in ({"mood": "glad"}, None, {"mood": "sad"})] == [
        "s:glad | u:hello",
        "u:hello",
        "s:sad | u:hello",
    ]
    assert told(env.step("a")[0]) == "s:sad | u:hello | a:a | u:heard a"


@pytest.mark.parametrize("name", WRAPPERS)
def test_gymnasium_checks_every_wrapper(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")  # that is its purpose
        check_env(WRAPPERS[name](gymnasium.make("agentr1/HotpotQA-v0", mode="react")), skip_render_check=True)


def test_a_strangers_environment_has_no_system_message() -> None:
    env = WindowContext(Stranger(), 1)
    assert told(env.reset(seed=0)[0]) == "u:hello"
    assert [told(env.step(action)[0]) for action in "ab"] == ["u:hello | a:a | u:heard a", "u:hello | a:b | u:heard b"]


def test_the_spec_says_how_it_is_wrapped() -> None:
    env = WindowContext(gymnasium.make("agentr1/GSM8K-v0", split="test"), 3)
    assert env.spec is not None
    assert env.spec.additional_wrappers[-1].kwargs == {"steps": 3}
    again = gymnasium.make(env.spec)
    assert again.reset(seed=1) == env.reset(seed=1)


def test_what_would_have_no_effect_is_refused() -> None:
    with pytest.raises(SettingError, match=r"observation='text'.*one context"):
        AppendContext(Counting(TASKS, observation="messages"))
    with pytest.raises(SettingError, match="one context"):
        MarkovContext(AppendContext(counting()))
    for make in (
        lambda: WindowContext(counting(), -1),
        lambda: FirstAndLastContext(counting(), last=0),
        lambda: FirstAndLastContext(counting(), first=-1),
        lambda: SummaryContext(counting(), lambda summary, step: "", steps=-1),
    ):
        with pytest.raises(SettingError, match="must be at least"):
            make()
