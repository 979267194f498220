"""Context wrappers under the trainer: each prompt is what the wrapper shows, rendered by the model's own template."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import pytest
from agentr1_envs.wrappers import (
    AppendContext,
    Exchange,
    FirstAndLastContext,
    MarkovContext,
    SummaryContext,
    WindowContext,
)
from agentr1_train.config import EnvConfig, RolloutConfig
from agentr1_train.env_pool import EnvPool
from agentr1_train.flow import AgentEnvLoop, Episode
from agentr1_train.renderer import Renderer
from agentr1_train.sampler.batching import BatchingSampler
from agentr1_train.sampler.scripted import ScriptedSampler
from agentr1_train.trajectory import Trajectory

ACTIONS = ["think[first]", "search[Oxley]", "lookup[river]", "dance", "search[Hollin]", "think[enough]", "finish[no]"]


def summarise(summary: str, step: Exchange) -> str:
    return f"{summary}Did {step.action}, saw {len(step.feedback)} letters. "


def state(opening: str, steps: Sequence[Exchange]) -> str:
    return f"{opening}\nDone: {', '.join(step.action for step in steps) or 'nothing'}"


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "append": AppendContext,
    "window": lambda env: WindowContext(env, 2),
    "first-and-last": lambda env: FirstAndLastContext(env, first=1, last=2),
    "summary": lambda env: SummaryContext(env, summarise, steps=1),
    "markov": MarkovContext,
    "markov-state": lambda env: MarkovContext(env, state),
}


@pytest.fixture(scope="module", autouse=True)
def _register() -> Iterator[None]:
    """An id for each wrapper, as a recipe would name it."""

    def entry_point(wrap: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda **kwargs: wrap(gymnasium.make("agentr1_envs:agentr1/HotpotQA-v0", mode="react", **kwargs))

    for name, wrap in WRAPPERS.items():
        gymnasium.register(f"context/{name}-v0", entry_point=entry_point(wrap), disable_env_checker=True)
    yield
    for name in WRAPPERS:
        gymnasium.registry.pop(f"context/{name}-v0")


def roll_out(tokenizer: Any, env_id: str) -> Trajectory:
    settings = RolloutConfig(max_prompt_tokens=20_000, max_response_tokens=100)
    flow = AgentEnvLoop(Renderer(tokenizer), settings)
    script = lambda prompt, key: ACTIONS[key[-1]]  # noqa: E731

    async def run(pool: EnvPool) -> list[Trajectory]:
        sampler = BatchingSampler(ScriptedSampler(tokenizer, script))
        try:
            return await flow.run(Episode(await pool.acquire(), sampler, 7, None, 0, 0, (0, 0, 0, 0)))
        finally:
            await sampler.close()

    with EnvPool(EnvConfig(id=env_id)) as pool:
        (trajectory,) = asyncio.run(run(pool))
    return trajectory


@pytest.mark.parametrize("name", WRAPPERS)
def test_each_prompt_is_what_the_wrapper_shows(tokenizer: Any, name: str) -> None:
    trajectory = roll_out(tokenizer, f"context/{name}-v0")
    assert (trajectory.error, trajectory.end_reason) == (None, "terminated")
    assert [step.action for step in trajectory.steps] == ACTIONS
    env = gymnasium.make(f"context/{name}-v0")
    shown = [env.reset(seed=7)[0], *(env.step(action)[0] for action in ACTIONS)]
    for step, messages in zip(trajectory.steps, shown, strict=False):
        assert tokenizer.decode(step.prompt_ids) == tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
    env.close()


def test_sampled_ids_stay_where_the_context_only_grows(tokenizer: Any) -> None:
    def grows(name: str) -> list[bool]:
        steps = roll_out(tokenizer, f"context/{name}-v0").steps
        return [
            after.prompt_ids[: len(before.prompt_ids + before.response_ids)] == before.prompt_ids + before.response_ids
            for before, after in itertools.pairwise(steps)
        ]

    assert grows("append") == [True] * 6
    assert grows("window") == [True, True, False, False, False, False]
    assert grows("first-and-last") == [True, True, True, False, False, False]
    assert grows("summary") == [True, False, False, False, False, False]
    assert grows("markov") == [False] * 6
