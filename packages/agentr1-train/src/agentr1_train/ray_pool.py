"""Episodes in CPU actors of a Ray cluster.

Each actor is an ``EpisodeHost``; the rank samples for all of them. An episode counts when its trajectories have
arrived here: one whose actor is lost before that is begun again elsewhere, with the same seeds, and so gives the same
trajectories. Ray starts no rank and owns no GPU: that is the launcher's. It is no cluster manager either: the nodes
are started with ``ray start``, one on each machine that has ranks or actors.
"""

import asyncio
import contextlib
import hashlib
import itertools
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentr1_train.config import EnvConfig, RayConfig
from agentr1_train.env_pool import EnvAttributes, EnvPool
from agentr1_train.episode_host import EpisodeHost, Event, Failed, PoolFacts, play_on_host
from agentr1_train.errors import ClusterError, ConfigError
from agentr1_train.flow import AgentFlow, EpisodeSampler
from agentr1_train.pools import EpisodeTask, Pool
from agentr1_train.ray_connection import check_room, connect, disconnect
from agentr1_train.sampler.base import Completion
from agentr1_train.trajectory import Trajectory

_CALLS = 100_000
"""Calls one actor answers at a time. They only wait: how much runs is bounded by ``rollout.concurrency``."""
_FAILED_STARTS = 3
"""Actors that may die one after another before the first environment of any stands."""
_POLL_S = 0.05


def open_pool(env: EnvConfig, settings: RayConfig, *, extra_kwargs: Mapping[str, Any] | None = None) -> Pool:
    """Return what plays the episodes of a recipe: environments in this process or, with ``ray.actors``, a ``RayPool``.

    Raises:
        ConfigError: no address, or one that nobody answers at; Ray is not installed; the cluster is too small.
        ClusterError: no actor stood in time.
        EnvironmentLoadError: the environment could not be made.
    """
    if settings.actors:
        return RayPool(env, settings, extra_kwargs=extra_kwargs)
    return EnvPool(env, extra_kwargs=extra_kwargs)


@dataclass(eq=False, slots=True)
class _Worker:
    """One actor."""

    actor: Any
    opening: Any
    """Reference to what ``EpisodeHost.open`` answers."""
    ready: bool = False
    episodes: int = 0
    """In flight on it."""
    flows: set[str] = field(default_factory=set)
    """Names of the flows it knows."""


@dataclass(frozen=True, slots=True)
class _Calls:
    """The calls of an episode over Ray."""

    actor: Any

    async def begin(self, number: int, task: EpisodeTask, flow: str, version: int) -> list[Event]:
        return await self.actor.begin.remote(number, task, flow, version)

    async def events(self, number: int) -> list[Event]:
        return await self.actor.events.remote(number)

    async def answer(self, number: int, request: int, completion: Completion, version: int) -> None:
        await self.actor.answer.remote(number, request, completion, version)

    def abandon(self, number: int) -> None:
        self.actor.abandon.remote(number)


class RayPool:
    """Actors that play episodes of one environment. One event loop uses it at a time."""

    def __init__(self, env: EnvConfig, settings: RayConfig, *, extra_kwargs: Mapping[str, Any] | None = None) -> None:
        """Connect, start the actors, and wait until the first one stands.

        Args:
            env: the section ``env`` of the recipe.
            settings: the section ``ray``.
            extra_kwargs: laid over ``env.kwargs``, as in ``EnvPool``.

        Raises:
            ConfigError: no address, or one that nobody answers at; Ray is not installed; the cluster is too small.
            ClusterError: no actor stood within ``ray.start_timeout_s``, or they died.
            EnvironmentLoadError: the environment could not be made there.
        """
        self._env, self._settings, self._extra = env, settings, dict(extra_kwargs or {})
        self.losses = 0
        """Actors lost so far."""
        self._numbers = itertools.count()
        self._failed_starts = 0
        self._pickled: list[tuple[AgentFlow, str, bytes]] = []
        self._workers: list[_Worker] = []
        self._ray = connect(settings)
        try:
            check_room(self._ray, settings)
            self._workers = [self._start() for _ in range(settings.actors)]
            facts = self._first_facts()
        except BaseException:
            self.close()
            raise
        self.env_id, self.task_ids, self.training_only = facts.env_id, facts.task_ids, facts.training_only
        self._attributes = facts.attributes

    def __enter__(self) -> "RayPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def attributes(self) -> EnvAttributes:
        """As in ``EnvPool``: those of an environment before any task was chosen."""
        if isinstance(self._attributes, Failed):
            raise self._attributes.error
        return self._attributes

    async def play(self, flow: AgentFlow, task: EpisodeTask, sampler: EpisodeSampler) -> list[Trajectory]:
        """Play one episode in an actor, and again in another when that one is lost.

        Returns:
            Its trajectories; a single one that ended as ``error`` when ``ray.attempts`` actors were lost with it.

        Raises:
            ClusterError: no actor is left, and none starts.
            EnvironmentLoadError: the environment could not be made in a new actor.
            Exception: whatever the model's side raised, in the flow or in the sampler.
        """
        for _ in range(self._settings.attempts):
            worker = await self._take()
            worker.episodes += 1
            try:
                name = await self._teach(worker, flow)
                return await play_on_host(_Calls(worker.actor), next(self._numbers), task, name, sampler)
            except self._ray.exceptions.RayError as error:
                if isinstance(error, self._ray.exceptions.RayTaskError):
                    raise
                self._lose(worker, error)
            finally:
                worker.episodes -= 1
        return [_lost(self.env_id, task, self._settings.attempts)]

    def close(self) -> None:
        """End the actors, and the connection with the last pool that uses it."""
        for worker in self._workers:
            self._kill(worker)
        self._workers.clear()
        disconnect(self._ray)

    def _start(self) -> _Worker:
        host = self._ray.remote(EpisodeHost).options(
            num_cpus=self._settings.cpus_per_actor,
            num_gpus=0,
            max_restarts=0,  # an actor that came back by itself would know nothing of its episodes
            max_concurrency=_CALLS,
            scheduling_strategy="SPREAD",
        )
        actor = host.remote(os.getcwd(), sys.path)
        return _Worker(actor, actor.open.remote(self._env, self._extra))

    def _kill(self, worker: _Worker) -> None:
        with contextlib.suppress(Exception):  # it is gone, or the whole cluster is
            self._ray.kill(worker.actor)

    def _lose(self, worker: _Worker, error: Exception) -> None:
        """Put a new actor in the place of a lost one; once, though each of its episodes reports the loss."""
        if worker not in self._workers:
            return
        self.losses += 1
        self._kill(worker)  # a broken connection looks the same, and the actor behind it would go on
        self._workers[self._workers.index(worker)] = self._start()
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        _say(f"a Ray actor was lost; {worker.episodes} episodes begin again ({reason})")

    def _admit(self) -> list[_Worker]:
        """Return the actors that stand.

        Raises:
            EnvironmentLoadError: an actor could not make the environment.
            ClusterError: several new actors died in turn.
        """
        opening = {worker.opening: worker for worker in self._workers if not worker.ready}
        if opening:
            done, _ = self._ray.wait(list(opening), num_returns=len(opening), timeout=0)
            for reference in done:
                self._hear(opening[reference])
        return [worker for worker in self._workers if worker.ready]

    def _hear(self, worker: _Worker) -> PoolFacts | None:
        """Return what an actor says after opening; ``None`` when it died, and another was started."""
        try:
            answer = self._ray.get(worker.opening)
        except self._ray.exceptions.RayError as error:
            self._failed_starts += 1
            if self._failed_starts > _FAILED_STARTS:
                raise ClusterError(
                    f"{self._failed_starts} Ray actors in turn died before they stood: {error}"
                ) from error
            self._lose(worker, error)
            return None
        if isinstance(answer, Failed):
            raise answer.error
        worker.ready, self._failed_starts = True, 0
        return answer

    def _first_facts(self) -> PoolFacts:
        """Wait for the first actor and return what it tells of its environment."""
        deadline = time.monotonic() + self._settings.start_timeout_s
        while time.monotonic() < deadline:
            opening = {worker.opening: worker for worker in self._workers}
            done, _ = self._ray.wait(list(opening), timeout=max(0.0, deadline - time.monotonic()))
            for reference in done:
                if (facts := self._hear(opening[reference])) is not None:
                    return facts
        raise self._too_late()

    async def _take(self) -> _Worker:
        """Return the actor with the fewest episodes; wait while none stands."""
        deadline = time.monotonic() + self._settings.start_timeout_s
        while not (ready := self._admit()):
            if time.monotonic() > deadline:
                raise self._too_late()
            await asyncio.sleep(_POLL_S)
        return min(ready, key=lambda worker: worker.episodes)

    def _too_late(self) -> ClusterError:
        free = self._ray.available_resources().get("CPU", 0.0)
        return ClusterError(
            f"no Ray actor stood within ray.start_timeout_s = {self._settings.start_timeout_s:g} s. Each needs "
            f"ray.cpus_per_actor = {self._settings.cpus_per_actor:g}, and {free:g} CPUs of the cluster are free now. "
            "Add nodes (ray start --address), lower ray.actors, or give a slow environment more time."
        )

    async def _teach(self, worker: _Worker, flow: AgentFlow) -> str:
        """Return the flow's name, once the actor knows it."""
        name, pickled = self._pickle(flow)
        if name not in worker.flows:
            refusal = await worker.actor.learn.remote(name, pickled)
            if refusal is not None:
                raise refusal.error
            worker.flows.add(name)
        return name

    def _pickle(self, flow: AgentFlow) -> tuple[str, bytes]:
        """Return a flow as bytes, and a name that equal flows share; the last few are kept."""
        for known, name, pickled in self._pickled:
            if known is flow:
                return name, pickled
        try:
            pickled = self._ray.cloudpickle.dumps(flow)
        except Exception as error:
            raise ConfigError(
                f"the flow {type(flow).__name__} cannot travel to a Ray actor: {type(error).__name__}: {error}. "
                "Keep in it what can be pickled, or set ray.actors = 0."
            ) from error
        name = hashlib.blake2b(pickled, digest_size=16).hexdigest()
        self._pickled = [*self._pickled[-3:], (flow, name, pickled)]
        return name, pickled


def _lost(env_id: str, task: EpisodeTask, attempts: int) -> Trajectory:
    return Trajectory(
        steps=(),
        env_id=env_id,
        task_id=str((task.options or {}).get("task_id", "")),
        seed=task.seed,
        group=task.group,
        member=task.member,
        success=False,
        end_reason="error",
        final_observation="",
        error=f"ray: {attempts} actors were lost while they played it",
    )


def _say(message: str) -> None:
    print(f"agentr1: {message}", file=sys.stderr, flush=True)
