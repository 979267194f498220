"""Episodes on a host: the same as here, token for token, branches included; what fails is told; nothing is left."""

import asyncio
import hashlib
import pickle
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agentr1_train.branching import BranchingEnvLoop
from agentr1_train.config import EnvConfig, RolloutConfig
from agentr1_train.env_pool import EnvAttributes, EnvPool
from agentr1_train.episode_host import EpisodeHost, Failed, Finished, PoolFacts, SampleRequest, play_on_host
from agentr1_train.errors import ConfigError, EnvironmentLoadError
from agentr1_train.flow import AgentEnvLoop, AgentFlow, EpisodeSampler
from agentr1_train.pools import EpisodeTask, play_episode
from agentr1_train.renderer import Renderer
from agentr1_train.rollout import collect, update_groups
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.scripted import ScriptedSampler
from agentr1_train.trajectory import Trajectory, TrajectoryGroup

SETTINGS = RolloutConfig(max_prompt_tokens=2000, max_response_tokens=24)
PATIENCE_S = 60.0
"""Long enough for a busy machine, so that what meets in a batch does not depend on it."""
DIARY = EnvConfig(id="cluster_env:Diary-v0")


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)


class HostPool:
    """A ``RemotePool`` whose host lives in this process. All that is missing is the wire; values cross it pickled."""

    def __init__(self, config: EnvConfig) -> None:
        self.host, self.number = EpisodeHost(), 0
        facts = asyncio.run(self.host.open(config, {}))
        assert isinstance(facts, PoolFacts)
        self.env_id, self.task_ids, self.training_only = facts.env_id, facts.task_ids, facts.training_only
        assert isinstance(facts.attributes, EnvAttributes)
        self.attributes = facts.attributes

    async def begin(self, *given: Any) -> Any:
        return pickle.loads(pickle.dumps(await self.host.begin(*given)))

    async def events(self, *given: Any) -> Any:
        return pickle.loads(pickle.dumps(await self.host.events(*given)))

    async def answer(self, *given: Any) -> None:
        await self.host.answer(*pickle.loads(pickle.dumps(given)))

    def abandon(self, number: int) -> None:
        self.host.abandon(number)

    async def play(self, flow: AgentFlow, task: EpisodeTask, sampler: EpisodeSampler) -> list[Trajectory]:
        self.number += 1
        assert await self.host.learn("flow", pickle.dumps(flow)) is None
        return await play_on_host(self, self.number, task, "flow", sampler)

    def close(self) -> None:
        self.host.close()

    def __enter__(self) -> "HostPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def by_key(prompt: str, key: tuple[int, ...]) -> str:
    return "w" * (1 + hashlib.blake2b(repr((prompt[-40:], key)).encode(), digest_size=1).digest()[0] % 9)


def untimed(groups: list[TrajectoryGroup]) -> list[TrajectoryGroup]:
    def steps(item: Trajectory) -> tuple[Any, ...]:
        return tuple(replace(step, sample_s=0.0, env_s=0.0) for step in item.steps)

    return [
        replace(group, trajectories=tuple(replace(item, steps=steps(item)) for item in group.trajectories))
        for group in groups
    ]


def roll(pool: Any, flow: AgentFlow, sampler: Any) -> list[TrajectoryGroup]:
    where = {"group_size": 2, "key": (3, 0), "concurrency": 6, "patience_s": PATIENCE_S}
    with pool:
        return untimed(collect(pool, sampler, flow, update_groups(3, 0, 3), **where))


def test_a_host_plays_what_is_played_here(tiny_tokenizer: Any) -> None:
    flow, sampler = AgentEnvLoop(Renderer(tiny_tokenizer), SETTINGS), ScriptedSampler(tiny_tokenizer, by_key)
    sampler.policy_version = 7
    here = roll(EnvPool(DIARY), flow, sampler)
    assert roll(HostPool(DIARY), flow, sampler) == here
    assert len({t.total_reward for group in here for t in group.trajectories}) > 2
    assert {step.policy_version for group in here for t in group.trajectories for step in t.steps} == {7}


def test_sampled_together_as_here(tiny_model: Any, tiny_tokenizer: Any) -> None:
    """With a real model even the rounding is the same, since the same prompts meet in the same batches."""
    flow = AgentEnvLoop(Renderer(tiny_tokenizer), SETTINGS)
    here = roll(EnvPool(DIARY), flow, HFSampler(tiny_model, tiny_tokenizer))
    assert roll(HostPool(DIARY), flow, HFSampler(tiny_model, tiny_tokenizer)) == here


def test_branches_have_their_own_place_in_flight(tiny_tokenizer: Any) -> None:
    branching = replace(SETTINGS, branch_width=2, branch_limit=4, branch_probability=1.0, branch_surprise=0.0)
    flow, sampler = BranchingEnvLoop(Renderer(tiny_tokenizer), branching), ScriptedSampler(tiny_tokenizer, by_key)
    here = roll(EnvPool(DIARY), flow, sampler)
    started = time.monotonic()
    assert roll(HostPool(DIARY), flow, sampler) == here
    assert time.monotonic() - started < PATIENCE_S  # no batch waited for a branch that rests or has ended
    assert [len(group.trajectories) for group in here] == [8, 8, 8]


def test_what_an_environment_lacks_is_told(tmp_path: Path) -> None:
    async def opened(config: EnvConfig) -> Any:
        return await EpisodeHost().open(config, {"broken": "no game here"} if config is DIARY else {})

    for config in (DIARY, replace(DIARY, id="cluster_env:Nothing-v0")):
        found = asyncio.run(opened(config))
        assert isinstance(found, Failed)
        assert isinstance(found.error, EnvironmentLoadError)
    found = asyncio.run(EpisodeHost().learn("flow", b"no pickle"))
    assert isinstance(found, Failed)


class UnportableError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class RaisingFlow:
    def __init__(self, error: str) -> None:
        self.error = error

    async def run(self, episode: Any) -> list[Trajectory]:
        raise ConfigError("no such template") if self.error == "config" else UnportableError(1, 2)


@pytest.mark.parametrize(
    ("which", "kind", "message"),
    [("config", ConfigError, "no such template"), ("other", RuntimeError, "UnportableError: 1 and 2")],
)
def test_what_a_flow_raises_is_raised_here(tiny_tokenizer: Any, which: str, kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        roll(HostPool(DIARY), RaisingFlow(which), ScriptedSampler(tiny_tokenizer, by_key))


class FailingSampler:
    policy_version = 0

    async def sample(self, prompt: Prompt, params: SamplingParams) -> Completion:
        raise MemoryError("too long")


def test_what_the_sampler_raises_abandons_the_episode(tiny_tokenizer: Any) -> None:
    async def main() -> None:
        pool = HostPool.__new__(HostPool)
        pool.host, pool.number = EpisodeHost(), 0
        await pool.host.open(DIARY, {})
        task = EpisodeTask(1, None, 0, 0, (0,))
        flow: Any = AgentEnvLoop(Renderer(tiny_tokenizer), SETTINGS)
        sampler: Any = FailingSampler()
        with pytest.raises(MemoryError, match="too long"):
            await play_episode(pool, flow, task, sampler)
        await pool.host.answer(pool.number, 0, Completion((), (), "stop"), 0)  # late, for nobody
        async with asyncio.timeout(30):
            while asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.sleep(0.01)
        assert not pool.host._plays
        pool.close()

    asyncio.run(main())


def test_whoever_waits_for_an_abandoned_episode_stops_waiting(tiny_tokenizer: Any) -> None:
    async def main() -> None:
        host = EpisodeHost()
        await host.open(DIARY, {})
        await host.learn("flow", pickle.dumps(AgentEnvLoop(Renderer(tiny_tokenizer), SETTINGS)))
        first = await host.begin(1, EpisodeTask(1, None, 0, 0, (0,)), "flow", 0)
        assert [type(event) for event in first] == [SampleRequest]
        waiting = asyncio.create_task(host.events(1))
        await asyncio.sleep(0)
        host.abandon(1)
        assert await asyncio.wait_for(waiting, 30) == [Finished(())]
        host.close()

    asyncio.run(main())
