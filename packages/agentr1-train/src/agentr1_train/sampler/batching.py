"""Many episodes, one sampler: what waits is sampled together, or joins what is being sampled.

The sampler runs in its own thread, so environments keep answering meanwhile. A batch starts once every episode in
flight waits for it. Where the sampler can (the hf sampler does), a response is handed out as soon as it ends, and once
a quarter of the batch has ended, sampling stands still until every episode in flight is in again: then those who wait
join. So while environments answer within ``patience_s``, what is sampled together does not depend on timing, and a run
repeats bit for bit. Where they do not, nobody is held back for them, and prompts join as they come.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from agentr1_train.sampler.attendance import Attendance, Slot
from agentr1_train.sampler.base import (
    Completion,
    ContinuousSampler,
    JoinableBatch,
    Outcome,
    Prompt,
    Sampler,
    SamplingParams,
    SoloSampler,
)
from agentr1_train.worker_thread import WorkerThread

PATIENCE_S = 0.25

_STEPS = 4
"""Tokens of a running batch after which the loop looks whether somebody has come or gone."""


@dataclass(eq=False, slots=True)
class _Request:
    prompt: Prompt
    params: SamplingParams
    slot: Slot | None
    future: "asyncio.Future[Completion]" = field(repr=False)
    open: bool = True
    """Its slot counts it."""

    def answer(self, outcome: Outcome) -> None:
        """Hand the outcome out, once the slot's other requests have theirs."""
        if not self.open:
            return
        self.open = False
        if self.slot is None:
            self._settle(outcome)
        else:
            self.slot.answer(lambda: self._settle(outcome))

    def withdraw(self) -> None:
        """Nobody waits for it any more; does nothing if it has its answer."""
        if self.open and self.slot is not None:
            self.slot.withdraw()
        self.open = False

    def _settle(self, outcome: Outcome) -> None:
        if self.future.done():
            return
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class BatchingSampler:
    """Lives inside one event loop. Requests may come from any task; those of one batch share their parameters.

    Requests that one slot makes at the same time are answered at the same time; tasks that should not wait for each
    other take a slot each.
    """

    def __init__(self, sampler: Sampler, *, patience_s: float = PATIENCE_S) -> None:
        """Wrap a sampler.

        Args:
            sampler: does the work, in a thread of its own.
            patience_s: how long episodes are held back for those whose environment is slow; 0: not at all.
        """
        self._sampler = sampler
        self._attendance = Attendance(patience_s)
        self._worker = WorkerThread("agentr1-sampler")
        self._arrived: list[_Request] = []
        self._queue: list[_Request] = []  # arrived before everybody was last in; the next to be sampled first
        self._task: asyncio.Task[None] | None = None

    @property
    def policy_version(self) -> int:
        return self._sampler.policy_version

    def slot(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Mark the current task, and the tasks it starts, as one place in flight that batches may wait for."""
        return self._attendance.slot()

    def renew(self) -> None:
        """Say that the current slot begins another episode: it rests no more."""
        if (slot := self._attendance.current) is not None:
            slot.resting = False

    def rest(self) -> None:
        """Say that the current slot only waits for others now: batches do not wait for it until it is renewed."""
        if (slot := self._attendance.current) is not None:
            slot.resting = True
            self._attendance.changed()

    async def sample(self, prompt: Prompt, params: SamplingParams) -> Completion:
        """Return the completion of one prompt, sampled with whatever else waits; or at once, by a solo sampler."""
        if isinstance(self._sampler, SoloSampler):
            return await self._sampler.complete(prompt, params)
        if self._task is None:
            self._task = asyncio.create_task(self._serve(), name="agentr1-batching")
        slot = self._attendance.current
        request = _Request(prompt, params, slot, asyncio.get_running_loop().create_future())
        if slot is not None:
            slot.requests += 1
        self._arrived.append(request)
        self._attendance.changed()
        try:
            return await request.future
        finally:
            request.withdraw()

    async def close(self) -> None:
        """Stop serving. Does not close the sampler, nor wait for tokens that are being sampled."""
        self._worker.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _serve(self) -> None:
        while True:
            while not self._queue and not self._arrived:
                await self._attendance.change()
            if not self._queue:
                await self._gather(running=False)
            if self._queue and isinstance(self._sampler, ContinuousSampler):
                await self._run_on(self._sampler, self._queue[0].params)
            elif self._queue:
                await self._run_once(self._queue[0].params)

    async def _gather(self, *, running: bool) -> None:
        """Once everybody is in, or has been waited for, queue what has arrived: by parameters, then by key.

        Not by arrival: the order of rows does not depend on timing either.
        """
        await self._attendance.everybody(running=running)
        arrived, self._arrived = sorted(self._arrived, key=lambda request: request.prompt.key), []
        kinds = list(dict.fromkeys(request.params for request in arrived))
        self._queue += sorted(arrived, key=lambda request: kinds.index(request.params))

    def _next(self, params: SamplingParams) -> list[_Request]:
        """Return the first of the queue that have these parameters. The others come when a batch has ended."""
        self._queue = [request for request in self._queue if not request.future.done()]
        return list(itertools.takewhile(lambda request: request.params == params, self._queue))

    async def _run_once(self, params: SamplingParams) -> None:
        """Sample a batch as a whole."""
        batch = self._next(params)
        del self._queue[: len(batch)]
        try:
            completions = await self._worker.call(self._sampler.sample, _prompts(batch), params)
            if len(completions) != len(batch):
                raise RuntimeError(f"the sampler returned {len(completions)} completions for {len(batch)} prompts")
        except Exception as error:
            _answer_all(batch, error)
            return
        for request, completion in zip(batch, completions, strict=True):
            request.answer(completion)

    async def _run_on(self, sampler: ContinuousSampler, params: SamplingParams) -> None:
        """Sample a batch that others join, until it is empty."""
        running: dict[int, _Request] = {}
        try:
            batch = await self._worker.call(sampler.start, params)
            await self._join(batch, running, params)
            while running:
                ended = await self._worker.call(batch.decode, _STEPS)
                for ticket, outcome in ended.items():
                    running.pop(ticket).answer(outcome)
                _drop_withdrawn(batch, running)
                await self._let_in(batch, running, params)
        except Exception as error:  # of the whole batch; what one prompt does wrong is its own outcome
            _answer_all(running.values(), error)

    async def _let_in(self, batch: JoinableBatch, running: dict[int, _Request], params: SamplingParams) -> None:
        """Let prompts join if it is time: the batch is thin; or somebody is late, which is not for others to feel."""
        if not running or not (batch.thin or (self._attendance.late and (self._queue or self._arrived))):
            return
        waiting = self._next(params)
        if len(waiting) == len(self._queue) and batch.room(_prompts(waiting)) == len(waiting):
            await self._gather(running=True)  # there is room for more than the queue holds
        await self._join(batch, running, params)

    async def _join(self, batch: JoinableBatch, running: dict[int, _Request], params: SamplingParams) -> None:
        waiting = self._next(params)
        joining = waiting[: batch.room(_prompts(waiting))]
        if not joining:
            return
        del self._queue[: len(joining)]
        try:
            tickets = await self._worker.call(batch.join, _prompts(joining))
        except Exception as error:
            _answer_all(joining, error)
            return
        running.update(zip(tickets, joining, strict=True))


def _prompts(requests: Iterable[_Request]) -> list[Prompt]:
    return [request.prompt for request in requests]


def _answer_all(requests: Iterable[_Request], outcome: Outcome) -> None:
    for request in requests:
        request.answer(outcome)


def _drop_withdrawn(batch: JoinableBatch, running: dict[int, _Request]) -> None:
    """Give up what nobody waits for."""
    gone = [ticket for ticket, request in running.items() if request.future.done()]
    batch.drop(gone)
    for ticket in gone:
        del running[ticket]
