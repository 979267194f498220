"""Who is in: the places in which episodes are played, and how long those whose environment works are waited for.

A place is in while something of it waits to be sampled or is being sampled, and away from its answer on. Everybody who
is away is waited for, ``patience_s`` at most. Once somebody was late, nobody is waited for any longer than it takes
to gather those who come at the same time, until everybody is in again: slow environments cost their own episodes time.
"""

import asyncio
import contextlib
import contextvars
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

_TICK_S = 0.01
"""Waiting is counted in such pieces, one at a time: while this process does not run, environments are not to blame."""


@dataclass(eq=False, slots=True)
class Slot:
    """One place in which episodes are played."""

    requests: int = 0
    """Prompts that wait or are being sampled."""
    resting: bool = False
    answers: list[Callable[[], None]] = field(default_factory=list)
    """Handed out when the last of the requests has one: until then nobody can say whether the place is away."""

    def answer(self, hand_out: Callable[[], None]) -> None:
        """One of the requests has its answer."""
        self.answers.append(hand_out)
        self._hand_out()

    def withdraw(self) -> None:
        """One of the requests is no more."""
        self.requests -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        if len(self.answers) >= self.requests:
            answers, self.answers, self.requests = self.answers, [], 0
            for hand_out in answers:
                hand_out()


_current_slot: contextvars.ContextVar[Slot | None] = contextvars.ContextVar("agentr1_slot", default=None)


class Attendance:
    """The slots of one event loop."""

    def __init__(self, patience_s: float) -> None:
        """Nobody is there yet.

        Args:
            patience_s: how long those who are away are waited for; 0: not at all.
        """
        self._patience = math.ceil(patience_s / _TICK_S)
        self._late = False
        self._slots: set[Slot] = set()
        self._changed = asyncio.Event()

    @property
    def late(self) -> bool:
        """Whether nobody is waited for at present, so that what meets in a batch depends on time."""
        return self._late or not self._patience

    @property
    def current(self) -> Slot | None:
        """The slot of the current task."""
        return _current_slot.get()

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Mark the current task, and the tasks it starts, as one place in flight."""
        slot = Slot()
        self._slots.add(slot)
        token = _current_slot.set(slot)
        try:
            yield
        finally:
            _current_slot.reset(token)
            self._slots.discard(slot)
            self.changed()

    def changed(self) -> None:
        """Say that somebody has come, or that nobody need wait for somebody any more."""
        self._changed.set()

    async def change(self) -> None:
        """Return after the next change."""
        self._changed.clear()
        await self._changed.wait()

    async def everybody(self, *, running: bool) -> None:
        """Return once nobody is away, or those who are have been waited for.

        Args:
            running: something is being sampled and stands still meanwhile: while somebody is late, do not wait at all.
        """
        loop = asyncio.get_running_loop()
        allowed = self._patience if not self.late else 0 if running else min(1, self._patience)
        waited, tick = 0, None
        while any(not slot.requests and not slot.resting for slot in self._slots):
            if tick is not None and loop.time() >= tick:
                waited, tick = waited + 1, None
            if waited >= allowed:
                self._late = True
                return
            tick = tick or loop.time() + _TICK_S
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), tick - loop.time())
        self._late = False
