"""Plays episodes in another process than the sampler's: environment, renderer and flow here, the model there.

An ``EpisodeHost`` is what lives in an actor; ``play_on_host`` is the rank's side of one episode. Between them go the
events of the episode (a prompt to be sampled, a branch begun, the end) one way and completions the other. How calls
travel is not known here: no Ray, so both ends also meet in one process. A call that is lost is the caller's business.
"""

import asyncio
import contextlib
import contextvars
import itertools
import os
import pickle
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agentr1_train.config import EnvConfig
from agentr1_train.env_pool import EnvAttributes, EnvPool
from agentr1_train.flow import AgentFlow, EpisodeSampler
from agentr1_train.pools import EpisodeTask, play_episode
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.trajectory import Trajectory

OWN_SLOT = 0
"""The place in flight that the episode itself has (see ``BatchingSampler.slot``); its branches count from 1."""


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """The flow waits for a completion, to be handed to ``EpisodeHost.answer`` under this number."""

    number: int
    slot: int
    prompt: Prompt
    params: SamplingParams


@dataclass(frozen=True, slots=True)
class SlotEvent:
    """A branch took a place in flight of its own, left it, or waits for others only."""

    slot: int
    what: str
    """``opened``, ``closed`` or ``rests``."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The episode is over; nothing follows."""

    trajectories: tuple[Trajectory, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The model's side raised, or no environment could be made: raised again in the rank. Nothing follows."""

    error: Exception


Event = SampleRequest | SlotEvent | Finished | Failed


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What a host tells of its environments (see ``EnvPool``)."""

    env_id: str
    task_ids: tuple[str, ...] | None
    training_only: tuple[str, ...]
    attributes: "EnvAttributes | Failed"


class HostCalls(Protocol):
    """The calls of one episode, however they travel."""

    async def begin(self, number: int, task: EpisodeTask, flow: str, version: int) -> list[Event]: ...
    async def events(self, number: int) -> list[Event]: ...
    async def answer(self, number: int, request: int, completion: Completion, version: int) -> None: ...
    def abandon(self, number: int) -> None: ...


@dataclass(slots=True)
class _Play:
    """One episode in progress on a host."""

    version: int
    queue: "asyncio.Queue[Event]" = field(default_factory=asyncio.Queue)
    waiting: "dict[int, asyncio.Future[Completion]]" = field(default_factory=dict)
    task: "asyncio.Task[None] | None" = None


class EpisodeHost:
    """Holds the environments of one process and plays any number of episodes in them, side by side."""

    def __init__(self, folder: str = "", paths: Sequence[str] = ()) -> None:
        """Take over where the rank looks for files and modules.

        Args:
            folder: the rank's working directory; entered where this machine has it, so that relative paths agree.
            paths: the rank's ``sys.path``; what is missing here is appended.
        """
        if folder and Path(folder).is_dir():
            os.chdir(folder)
        sys.path += [path for path in paths if path not in sys.path]
        self._pool: EnvPool | None = None
        self._flows: dict[str, AgentFlow] = {}
        self._plays: dict[int, _Play] = {}

    async def open(self, config: EnvConfig, extra_kwargs: Mapping[str, Any]) -> PoolFacts | Failed:
        """Make the first environment; what is wrong with it comes back as data."""
        try:
            pool = self._pool = EnvPool(config, extra_kwargs=extra_kwargs)
        except Exception as error:
            return Failed(_portable(error))
        try:
            attributes = pool.attributes
        except Exception as error:  # only some flows ask for them before a task is chosen
            attributes = Failed(_portable(error))
        return PoolFacts(pool.env_id, pool.task_ids, pool.training_only, attributes)

    async def learn(self, name: str, flow: bytes) -> Failed | None:
        """Keep a pickled flow under a name."""
        try:
            self._flows[name] = pickle.loads(flow)
        except Exception as error:
            return Failed(_portable(error))
        return None

    async def begin(self, number: int, task: EpisodeTask, flow: str, version: int) -> list[Event]:
        """Start an episode and return its first events, at least one.

        Args:
            number: names the episode in later calls; not used twice.
            task: what is played.
            flow: the name of a flow that was learned.
            version: the sampler's policy version.
        """
        play = self._plays[number] = _Play(version)
        play.task = asyncio.create_task(self._run(play, self._flows[flow], task))
        return await self.events(number)

    async def events(self, number: int) -> list[Event]:
        """Wait for at least one event and return all there are, in order. Only one call may wait."""
        play = self._plays[number]
        found = [await play.queue.get()]
        while not play.queue.empty():
            found.append(play.queue.get_nowait())
        if isinstance(found[-1], Finished | Failed):
            self._plays.pop(number, None)
        return found

    async def answer(self, number: int, request: int, completion: Completion, version: int) -> None:
        """Hand over a completion; one that nobody waits for any more is dropped."""
        play = self._plays.get(number)
        if play is None:
            return
        play.version = version
        future = play.waiting.pop(request, None)
        if future is not None and not future.done():
            future.set_result(completion)

    def abandon(self, number: int) -> None:
        """Stop an episode, if it is still played."""
        play = self._plays.pop(number, None)
        if play is not None and play.task is not None:
            play.task.cancel()
            play.queue.put_nowait(Finished(()))  # whoever waits for events stops waiting

    def close(self) -> None:
        """Stop all episodes and close the environments."""
        for number in list(self._plays):
            self.abandon(number)
        if self._pool is not None:
            self._pool.close()

    async def _run(self, play: _Play, flow: AgentFlow, task: EpisodeTask) -> None:
        assert self._pool is not None
        try:
            found = await play_episode(self._pool, flow, task, _SamplerProxy(play))
            play.queue.put_nowait(Finished(tuple(found)))
        except Exception as error:
            play.queue.put_nowait(Failed(_portable(error)))


_slot: contextvars.ContextVar[int] = contextvars.ContextVar("agentr1_host_slot", default=OWN_SLOT)


class _SamplerProxy:
    """Stands for the rank's ``BatchingSampler`` beside a flow: every call becomes an event."""

    def __init__(self, play: _Play) -> None:
        self._play = play
        self._requests = itertools.count()
        self._slots = itertools.count(OWN_SLOT + 1)

    @property
    def policy_version(self) -> int:
        return self._play.version

    async def sample(self, prompt: Prompt, params: SamplingParams) -> Completion:
        number = next(self._requests)
        future = self._play.waiting[number] = asyncio.get_running_loop().create_future()
        self._play.queue.put_nowait(SampleRequest(number, _slot.get(), prompt, params))
        try:
            return await future
        finally:
            self._play.waiting.pop(number, None)

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        number = next(self._slots)
        token = _slot.set(number)
        self._play.queue.put_nowait(SlotEvent(number, "opened"))
        try:
            yield
        finally:
            _slot.reset(token)
            self._play.queue.put_nowait(SlotEvent(number, "closed"))

    def rest(self) -> None:
        self._play.queue.put_nowait(SlotEvent(_slot.get(), "rests"))


async def play_on_host(
    host: HostCalls, number: int, task: EpisodeTask, flow: str, sampler: EpisodeSampler
) -> list[Trajectory]:
    """Play one episode on a host: sample what it asks for until it ends.

    Args:
        host: has learned ``flow``.
        number: names the episode; used once on this host.
        task: what is played.
        flow: name of the flow.
        sampler: the rank's; called in the slot of the current task, or in a slot of its own for each branch.

    Raises:
        Exception: what the flow raised there, what the sampler raised here, or what the transport raised.
    """
    slots = _Slots(sampler)
    answers: set[asyncio.Task[None]] = set()
    news = asyncio.create_task(host.begin(number, task, flow, sampler.policy_version))

    async def serve(request: SampleRequest) -> None:
        completion = await sampler.sample(request.prompt, request.params)
        await host.answer(number, request.number, completion, sampler.policy_version)

    try:
        while True:
            done, _ = await asyncio.wait({news, *answers}, return_when=asyncio.FIRST_COMPLETED)
            for answered in done & answers:
                answers.discard(answered)
                answered.result()
            if news not in done:
                continue
            for event in news.result():
                if isinstance(event, Finished):
                    return list(event.trajectories)
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, SlotEvent):
                    await slots.follow(event)
                else:
                    context = slots.contexts[event.slot]
                    answers.add(asyncio.get_running_loop().create_task(serve(event), context=context))
            news = asyncio.create_task(host.events(number))
    finally:
        for call in (news, *answers):
            call.cancel()
        await asyncio.gather(news, *answers, return_exceptions=True)
        await slots.close()
        host.abandon(number)


class _Slots:
    """The places in flight of an episode and its branches; each is a context in which the sampler finds its slot."""

    def __init__(self, sampler: EpisodeSampler) -> None:
        self._sampler = sampler
        self.contexts = {OWN_SLOT: contextvars.copy_context()}
        self._open: dict[int, contextlib.AbstractAsyncContextManager[None]] = {}

    async def follow(self, event: SlotEvent) -> None:
        """Do here what a branch did there."""
        if event.what == "opened":
            context = self.contexts[event.slot] = contextvars.copy_context()
            self._open[event.slot] = self._sampler.slot()
            await asyncio.get_running_loop().create_task(self._enter(event.slot), context=context)
        elif event.what == "closed":
            await self._leave(event.slot)
        else:
            self.contexts[event.slot].run(self._sampler.rest)

    async def close(self) -> None:
        """Leave the slots that are still open."""
        for slot in list(self._open):
            await self._leave(slot)

    async def _enter(self, slot: int) -> None:
        await self._open[slot].__aenter__()

    async def _leave(self, slot: int) -> None:
        async def leave() -> None:
            await left.__aexit__(None, None, None)

        left = self._open.pop(slot)
        await asyncio.get_running_loop().create_task(leave(), context=self.contexts.pop(slot))


def _portable(error: Exception) -> Exception:
    """Return the error, or one that says the same, in a form that another process can raise."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
