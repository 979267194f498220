"""Where an episode is played: environments come back whatever happens; a remote pool is asked for whole episodes."""

import asyncio
from typing import Any

import pytest
from agentr1_train.config import EnvConfig
from agentr1_train.env_pool import EnvPool
from agentr1_train.flow import Episode
from agentr1_train.pools import EpisodeTask, play_episode
from agentr1_train.trajectory import Trajectory

TASK = EpisodeTask(seed=3, options={"task_id": "x"}, group=1, member=2, key=(0, 1, 2))


class SeenFlow:
    """Keeps the episodes it was given, plays none, and may fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.seen: list[Episode] = []
        self.error = error

    async def run(self, episode: Episode) -> list[Trajectory]:
        self.seen.append(episode)
        if self.error is not None:
            raise self.error
        return []


def test_the_episode_of_a_task(echo_env_id: str) -> None:
    flow, sampler = SeenFlow(), object()
    with EnvPool(EnvConfig(id=echo_env_id)) as pool:
        assert asyncio.run(play_episode(pool, flow, TASK, sampler)) == []  # type: ignore[arg-type]
        (episode,) = flow.seen
        assert (episode.seed, episode.options, episode.group, episode.member, episode.key) == (
            *(TASK.seed, TASK.options, TASK.group, TASK.member),
            TASK.key,
        )
        assert episode.sampler is sampler
        assert episode.lend == pool.lend
        failing = SeenFlow(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            asyncio.run(play_episode(pool, failing, TASK, sampler))  # type: ignore[arg-type]
        assert failing.seen[0].env is episode.env  # it came back both times


def test_a_remote_pool_plays_by_itself() -> None:
    class Elsewhere:
        async def play(self, *given: Any) -> Any:
            return given

    flow, sampler, pool = SeenFlow(), object(), Elsewhere()
    played: Any = asyncio.run(play_episode(pool, flow, TASK, sampler))  # type: ignore[arg-type]
    assert played == (flow, TASK, sampler)
    assert not flow.seen
