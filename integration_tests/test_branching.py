"""Branching in this project's own environments: ALFWorld and those with tools are copied, others played again."""

import hashlib
import re
from collections.abc import Callable
from typing import Any

import agentr1_envs  # noqa: F401 (registers the ids)
import gymnasium
import pytest
from agentr1_envs.wrappers import WindowContext
from agentr1_train.branching import BranchingEnvLoop
from agentr1_train.config import EnvConfig, RolloutConfig
from agentr1_train.env_pool import EnvHandle, EnvPool
from agentr1_train.renderer import Renderer
from agentr1_train.rollout import GroupSpec, collect
from agentr1_train.sampler.scripted import ScriptedSampler
from agentr1_train.trajectory import Trajectory

SETTINGS = RolloutConfig(
    max_prompt_tokens=100_000, max_response_tokens=200, max_steps=4, branch_width=2, branch_probability=1.0
)
COMMANDS = ("look", "inventory", "help", "go to shelf 1", "go to desk 1", "go to bed 1", "go to drawer 1")


def pick(key: tuple[int, ...]) -> int:
    return int(hashlib.blake2b(repr(key).encode(), digest_size=4).hexdigest(), 16)


def branched(tokenizer: Any, env_id: str, script: Any, **kwargs: Any) -> list[Trajectory]:
    flow = BranchingEnvLoop(Renderer(tokenizer), SETTINGS)
    sampler = ScriptedSampler(tokenizer, script)
    with EnvPool(EnvConfig(id=env_id, kwargs=kwargs)) as pool:
        (group,) = collect(pool, sampler, flow, [GroupSpec(0, 11)], group_size=1, key=(0, 0, 0), concurrency=4)
    return list(group.trajectories)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The states that environments were given."""
    given: list[Any] = []
    take: Callable[..., Any] = EnvHandle.set_state

    async def set_state(self: EnvHandle, state: Any) -> None:
        given.append(state)
        await take(self, state)

    monkeypatch.setattr(EnvHandle, "set_state", set_state)
    return given


def check_against_a_play_of_its_own(env_id: str, items: list[Trajectory], **kwargs: Any) -> None:
    """Each branch's actions, played from the start in one environment, give its observations and rewards."""
    env = gymnasium.make(env_id, **kwargs)
    for item in items:
        observation, _ = env.reset(seed=item.seed)
        for step in item.steps:
            assert observation == step.observation
            observation, reward, *_ = env.step(step.action)
            assert reward == step.reward
        assert observation == item.final_observation
    env.close()


def test_alfworld_is_copied(tokenizer: Any, copies: list[Any]) -> None:
    items = branched(
        tokenizer, "agentr1_envs:agentr1/ALFWorld-v0", lambda prompt, key: f"Action: {COMMANDS[pick(key) % 7]}"
    )
    assert [item.error for item in items] == [None] * 4
    assert len(copies) == 3
    assert len({tuple(step.action for step in item.steps) for item in items}) > 1
    check_against_a_play_of_its_own("agentr1_envs:agentr1/ALFWorld-v0", items)


def test_behind_a_wrapper_with_a_history_it_is_played_again(tokenizer: Any, copies: list[Any]) -> None:
    env_id = "branching/Window-v0"
    gymnasium.register(env_id, entry_point=lambda: WindowContext(gymnasium.make("agentr1/ALFWorld-v0"), 1))
    try:
        items = branched(tokenizer, env_id, lambda prompt, key: f"Action: {COMMANDS[pick(key) % 7]}")
        assert copies == []
        assert [item.error for item in items] == [None] * 4
        for item in items:  # a window of one: the step before, and no other
            for step, before in zip(item.steps[1:], item.steps, strict=False):
                assert f"{before.action}<|im_end|>" in tokenizer.decode(step.prompt_ids)
    finally:
        gymnasium.registry.pop(env_id)


CALL = '<tool_call>{{"name": "calculator", "arguments": {{"expression": "{} + 1"}}}}</tool_call>'


@pytest.mark.parametrize(("mode", "copied"), [("GSM8K-v0", 3), ("GSM8KOracle-v0", 0)])
def test_an_environment_with_tools_is_copied_unless_it_answers_some_itself(
    tokenizer: Any, copies: list[Any], mode: str, copied: int
) -> None:
    env_id, kwargs = f"agentr1_envs:agentr1/{mode}", {"data": "bundled", "split": "test", "format": "hermes"}
    items = branched(tokenizer, env_id, lambda prompt, key: CALL.format(pick(key) % 1000), **kwargs)
    assert [item.error for item in items] == [None] * 4
    assert len(copies) == copied
    assert len({item.final_observation for item in items}) == 4
    for item in items:
        asked = re.search(r"(\d+) \+ 1", item.steps[-1].action)
        assert asked is not None
        assert str(int(asked[1]) + 1) in item.final_observation
    check_against_a_play_of_its_own(env_id, items, **kwargs)
