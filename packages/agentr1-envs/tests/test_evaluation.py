from typing import Any

import pytest
from agentr1_envs import evaluate
from agentr1_envs.errors import SettingError


def test_any_callable_is_a_policy() -> None:
    seen: list[Any] = []

    def policy(observation: str) -> str:
        seen.append(observation)
        return "<answer>7</answer>"

    found = evaluate("agentr1/GSM8K-v0", policy, 6, split="test", data="bundled")
    assert len(found.episodes) == len(seen) == 6
    assert all(isinstance(text, str) and text.endswith("?") for text in seen)
    assert [episode.seed for episode in found.episodes] == list(range(6))
    again = evaluate("agentr1_envs:agentr1/GSM8K-v0", policy, 6, split="test", data="bundled")
    assert again.episodes == found.episodes
    assert found.metrics["success"] == found.success == sum(episode.success for episode in found.episodes) / 6
    assert found.metrics["gsm8k_lenient"] == found.reward


def test_the_messages_view_shows_the_conversation() -> None:
    lengths: list[int] = []

    def policy(messages: tuple[dict[str, str], ...]) -> str:
        lengths.append(len(messages))
        assert messages[0]["role"] == "system"
        assert messages[1]["role"] == messages[-1]["role"] == "user"
        if len(messages) == 2:
            return '<tool_call>{"name": "calculator", "arguments": {"expression": "1+1"}}</tool_call>'
        return f"<answer>{messages[-1]['content'].split()[1]}</answer>"

    for kwargs in ({}, {"observation": "messages"}):
        lengths.clear()
        found = evaluate("agentr1/GSM8K-v0", policy, 3, view="messages", **kwargs)
        assert lengths == [2, 4] * 3
        assert found.steps == 2.0
        assert found.metrics["tool_calls"] == 1.0


def test_with_enough_episodes_every_task_is_played() -> None:
    tasks = [{"id": name, "question": f"{name}?", "answer": name} for name in ("a", "b", "c")]
    found = evaluate("agentr1/ToolEnv-v0", lambda observation: observation[0], 6, tasks=tasks)
    assert [episode.task_id for episode in found.episodes] == ["a", "b", "c"] * 2
    assert (found.success, found.reward, found.steps) == (1.0, 1.0, 1.0)


def test_a_cut_episode_is_no_success() -> None:
    call = '<tool_call>{"name": "calculator", "arguments": {"expression": "1+1"}}</tool_call>'
    found = evaluate("agentr1/GSM8K-v0", lambda observation: call, 2, max_steps=3)
    assert (found.success, found.metrics["truncated"], found.steps) == (0.0, 1.0, 3.0)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(SettingError, match="episodes=0"):
        evaluate("agentr1/GSM8K-v0", str, 0)
    with pytest.raises(SettingError, match="Did you mean 'messages'"):
        evaluate("agentr1/GSM8K-v0", str, 1, view="message")  # type: ignore[arg-type]


def test_an_environment_that_fails_on_purpose_is_not_evaluated() -> None:
    with pytest.raises(SettingError, match=r"inject_errors: for training only; leave it out to evaluate agentr1/"):
        evaluate("agentr1/ToolEnv-v0", lambda text: "", 1, inject_errors=0.1)
    assert len(evaluate("agentr1/ToolEnv-v0", lambda text: "", 1, inject_errors=0.0).episodes) == 1
