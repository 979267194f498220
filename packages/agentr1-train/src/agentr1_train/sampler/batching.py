"""Many episodes, one sampler: waiting prompts are sampled together whenever the sampler is free.

The sampler runs in its own thread, so environments keep answering meanwhile. A batch starts once every episode in
flight waits for it: while environments answer in time, what is sampled together does not depend on timing, and a run
repeats bit for bit. Where they do not, a batch starts after ``patience_s``, and later ones after a hundredth of a
second until everybody is in time again: slow environments cost their own episodes time, not the others'.
"""

import asyncio
import contextlib
import contextvars
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from agentr1_train.sampler.base import Completion, Prompt, Sampler, SamplingParams, SoloSampler
from agentr1_train.worker_thread import WorkerThread

PATIENCE_S = 0.25

_TICK_S = 0.01
"""Waiting is counted in such pieces, one at a time: while this process does not run, environments are not to blame."""


@dataclass(eq=False, slots=True)
class _Slot:
    """One place in which episodes are played."""

    waiting: int = 0
    resting: bool = False


@dataclass(slots=True)
class _Request:
    prompt: Prompt
    params: SamplingParams
    slot: _Slot | None
    future: "asyncio.Future[Completion]" = field(repr=False)


_current_slot: contextvars.ContextVar[_Slot | None] = contextvars.ContextVar("agentr1_slot", default=None)


class BatchingSampler:
    """Lives inside one event loop. Requests may come from any task; those of one batch share their parameters."""

    def __init__(self, sampler: Sampler, *, patience_s: float = PATIENCE_S) -> None:
        """Wrap a sampler.

        Args:
            sampler: does the work, in a thread of its own.
            patience_s: how long waiting episodes are held back for those whose environment is slow; 0: not at all.
        """
        self._sampler = sampler
        self._patience = math.ceil(patience_s / _TICK_S)
        self._allowed = self._patience  # ticks for which the next batch waits
        self._worker = WorkerThread("agentr1-sampler")
        self._slots: set[_Slot] = set()
        self._requests: list[_Request] = []
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def policy_version(self) -> int:
        return self._sampler.policy_version

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Mark the current task, and the tasks it starts, as one place in flight that batches may wait for."""
        slot = _Slot()
        self._slots.add(slot)
        token = _current_slot.set(slot)
        try:
            yield
        finally:
            _current_slot.reset(token)
            self._slots.discard(slot)
            self._changed.set()

    def renew(self) -> None:
        """Say that the current slot begins another episode: it rests no more."""
        if (slot := _current_slot.get()) is not None:
            slot.resting = False

    def rest(self) -> None:
        """Say that the current slot only waits for others now: batches do not wait for it until it is renewed."""
        if (slot := _current_slot.get()) is not None:
            slot.resting = True
            self._changed.set()

    async def sample(self, prompt: Prompt, params: SamplingParams) -> Completion:
        """Return the completion of one prompt, sampled with whatever else waits; or at once, by a solo sampler."""
        if isinstance(self._sampler, SoloSampler):
            return await self._sampler.complete(prompt, params)
        if self._task is None:
            self._task = asyncio.create_task(self._serve(), name="agentr1-batching")
        slot = _current_slot.get()
        request = _Request(prompt, params, slot, asyncio.get_running_loop().create_future())
        if slot is not None:
            slot.waiting += 1
        self._requests.append(request)
        self._changed.set()
        try:
            return await request.future
        finally:
            if slot is not None:
                slot.waiting -= 1

    async def close(self) -> None:
        """Stop serving. Does not close the sampler, nor wait for a batch that is being sampled."""
        self._worker.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _serve(self) -> None:
        while True:
            await self._gather()
            taken, self._requests = self._requests, []
            taken = [request for request in taken if not request.future.done()]
            for params in dict.fromkeys(request.params for request in taken):
                # By key, not by arrival: the order of rows does not depend on timing either.
                batch = sorted((item for item in taken if item.params == params), key=lambda item: item.prompt.key)
                await self._run(batch, params)

    async def _gather(self) -> None:
        """Return once there is a request and everybody is in, or has been waited for."""
        loop = asyncio.get_running_loop()
        waited, tick = 0, None
        while True:
            self._changed.clear()
            if self._requests:
                if all(slot.waiting or slot.resting for slot in self._slots):
                    self._allowed = self._patience
                    return
                if tick is not None and loop.time() >= tick:
                    waited, tick = waited + 1, None
                if waited >= self._allowed:
                    self._allowed = min(1, self._patience)
                    return
                tick = tick or loop.time() + _TICK_S
            else:
                tick = None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), None if tick is None else tick - loop.time())

    async def _run(self, batch: list[_Request], params: SamplingParams) -> None:
        try:
            completions = await self._worker.call(self._sampler.sample, [item.prompt for item in batch], params)
            if len(completions) != len(batch):
                raise RuntimeError(f"the sampler returned {len(completions)} completions for {len(batch)} prompts")
        except Exception as error:
            for request in batch:
                if not request.future.done():
                    request.future.set_exception(error)
            return
        for request, completion in zip(batch, completions, strict=True):
            if not request.future.done():
                request.future.set_result(completion)
