"""Where an episode is played: by environments in this process, or by a pool that plays it elsewhere.

A rollout knows this module only. It plays one episode; which ones, in which order and how many at once is the
rollout's business, and how episodes travel is the business of ``ray_pool.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from agentr1_train.env_pool import EnvAttributes, EnvPool
from agentr1_train.flow import AgentFlow, Episode, EpisodeSampler
from agentr1_train.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class EpisodeTask:
    """What is played; the same task with the same weights gives the same trajectories, wherever it is played."""

    seed: int
    options: Mapping[str, Any] | None
    """Handed to ``reset`` beside the seed."""
    group: int
    member: int
    key: tuple[int, ...]
    """Seeds the episode's noise (see ``Episode.key``)."""


class RemotePool(Protocol):
    """Plays episodes outside this process. The attributes are those of ``EnvPool``."""

    env_id: str
    task_ids: tuple[str, ...] | None
    training_only: tuple[str, ...]

    @property
    def attributes(self) -> EnvAttributes: ...

    async def play(self, flow: AgentFlow, task: EpisodeTask, sampler: EpisodeSampler) -> list[Trajectory]:
        """Play one episode to its end; ``flow`` runs there, ``sampler`` here."""
        ...

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


Pool = EnvPool | RemotePool


async def play_episode(pool: Pool, flow: AgentFlow, task: EpisodeTask, sampler: EpisodeSampler) -> list[Trajectory]:
    """Play one episode and return its trajectories.

    Raises:
        EnvironmentLoadError: a further environment could not be made.
        Exception: whatever the model's side raised (see ``flow.py``).
    """
    if not isinstance(pool, EnvPool):
        return await pool.play(flow, task, sampler)
    env = await pool.acquire()
    try:
        episode = Episode(env, sampler, task.seed, task.options, task.group, task.member, task.key, pool.lend)
        return await flow.run(episode)
    finally:
        pool.release(env)
