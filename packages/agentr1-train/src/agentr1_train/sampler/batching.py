"""Many episodes, one sampler: what waits is sampled together, or joins what is being sampled.

The sampler runs in its own thread, so environments keep answering meanwhile. A batch starts once every episode in
flight waits for it. Where the sampler can (the hf sampler does), a response is handed out as soon as it ends, and once
half of a batch has ended, sampling stands still until every episode in flight is in again: then those who wait join.
So while environments answer within ``patience_s``, what is sampled together does not depend on timing, and a run
repeats bit for bit. Where they do not, nobody is held back for them, and prompts join as they come.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping
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

_HALF = 2
"""A batch stands still for episodes that are away once one in so many has left it: each time costs their latency."""

_QUARTER = 4
"""Prompts that nobody has to wait for join once one in so many has left: each time copies the cache."""


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


@dataclass(slots=True)
class _Run:
    """A batch that is being sampled, and whose prompts are in it."""

    batch: JoinableBatch
    params: SamplingParams
    requests: dict[int, _Request] = field(default_factory=dict)
    """By ticket."""
    full: int = 0
    """Requests in it when others last could join."""

    def answer(self, ended: Mapping[int, Outcome]) -> None:
        """Answer those who have ended, and drop those whom nobody waits for."""
        for ticket, outcome in ended.items():
            self.requests.pop(ticket).answer(outcome)
        withdrawn = [ticket for ticket, request in self.requests.items() if request.future.done()]
        self.batch.drop(withdrawn)
        for ticket in withdrawn:
            del self.requests[ticket]

    def has_lost(self, one_in: int) -> bool:
        """Whether one in so many has left since others last could join."""
        return len(self.requests) <= self.full - max(1, self.full // one_in)


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

    def _take(self, params: SamplingParams, room: Callable[[list[Prompt]], int] = len) -> list[_Request]:
        """Take the first that have these parameters off the queue, as many as there is ``room`` for.

        Behind others nobody goes ahead: the batch ends, and theirs comes next.
        """
        self._queue = [request for request in self._queue if not request.future.done()]
        first = list(itertools.takewhile(lambda request: request.params == params, self._queue))
        count = room(_prompts(first))
        taken, self._queue = self._queue[:count], self._queue[count:]
        return taken

    async def _run_once(self, params: SamplingParams) -> None:
        """Sample a batch as a whole."""
        batch = self._take(params)
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
        try:
            run = _Run(await self._worker.call(sampler.start, params), params)
        except Exception as error:
            _answer_all(self._take(params), error)
            return
        await self._join(run)
        try:
            while run.requests:
                run.answer(await self._worker.call(run.batch.decode, _STEPS))
                if run.requests and self._join_now(run):
                    if self._attendance.late or not self._queue:
                        await self._gather(running=True)
                    await self._join(run)
        except Exception as error:  # of the whole batch; what one prompt does wrong is its own outcome
            _answer_all(run.requests.values(), error)

    def _join_now(self, run: _Run) -> bool:
        if self._attendance.late:
            return bool(self._queue or self._arrived)
        return run.has_lost(_QUARTER if self._queue else _HALF)

    async def _join(self, run: _Run) -> None:
        """Let the first of the queue join, as many as there is room for."""
        if joining := self._take(run.params, run.batch.room):
            try:
                tickets = await self._worker.call(run.batch.join, _prompts(joining))
                run.requests.update(zip(tickets, joining, strict=True))
            except Exception as error:
                _answer_all(joining, error)
        run.full = len(run.requests)


def _prompts(requests: Iterable[_Request]) -> list[Prompt]:
    return [request.prompt for request in requests]


def _answer_all(requests: Iterable[_Request], outcome: Outcome) -> None:
    for request in requests:
        request.answer(outcome)
