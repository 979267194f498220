"""Rollouts that are played while updates run, in a thread of their own, with weights a known number of versions old.

Rollout k is played with version ``max(first, k - level)`` of the weights, whatever the timing: ``first`` is the version
that the run started or was resumed with, and version k is what update k starts from. So a rollout is at most ``level``
versions behind its update, exactly ``level`` once the run is under way, and a run repeats.

The thread owns the sampler while it plays. Between ``settle`` and the next ``take`` it stands still, and the main
thread may use the sampler. What the main thread says (``take``, ``hold``) alone decides how far the thread may go, so
all ranks stand still at the same rollout. Engines, and their collectives, are the main thread's.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from torch import Tensor

from agentr1_train import distributed
from agentr1_train.collection import Collected, Collector, collect_update, load_collected
from agentr1_train.config import Recipe
from agentr1_train.presets import AlgorithmSettings
from agentr1_train.rollout import Stop
from agentr1_train.sampler.base import Sampler

_GRACE_S = 5.0
"""Seconds that ``close`` waits for the thread; a hung environment or a lost rank does not keep a run from ending."""


@contextlib.contextmanager
def open_ahead(
    collector: Collector, recipe: Recipe, settings: AlgorithmSettings, first: int, untrained: str = ""
) -> Iterator["RolloutsAhead"]:
    """Make what plays a run's rollouts ahead, and close it again. A collective call.

    Args:
        collector: plays; nobody else uses it meanwhile.
        recipe: its ``rollout.async_level`` is at least 1.
        settings: the algorithm.
        first: updates done.
        untrained: from ``dump_collected``: rollouts that a checkpoint holds beyond its update.
    """
    stop = Stop()
    mine = replace(collector, gather=distributed.side_gather(), stop=stop)
    ahead = RolloutsAhead(
        lambda update: collect_update(mine, recipe, settings, update),
        collector.sampler,
        level=recipe.rollout.async_level,
        first=first,
        updates=recipe.updates,
        stop=stop,
        played=load_collected(untrained) if untrained else (),
    )
    with contextlib.closing(ahead):
        yield ahead


class RolloutsAhead:
    """Plays the rollouts of a run in order, ahead of their updates. Methods are for the main thread."""

    def __init__(
        self,
        play: Callable[[int], Collected],
        sampler: Sampler,
        *,
        level: int,
        first: int,
        updates: int,
        stop: Stop,
        played: Iterable[Collected] = (),
    ) -> None:
        """Nothing is played before the first ``take``.

        Args:
            play: plays the rollout of an update; its collectives, if any, must be its own thread's.
            sampler: what ``play`` samples with; holds version ``first``.
            level: versions that a rollout may be behind, at least 1.
            first: the update that comes first, and the version that it starts from.
            updates: rollouts are played for updates below this.
            stop: ends ``play``.
            played: rollouts of the first updates, played before a run was resumed.
        """
        self.version = first
        """Of the newest weights."""
        self._play, self._sampler, self._stop = play, sampler, stop
        self._level, self._first, self._updates = level, first, updates
        self._played = dict(enumerate(played, start=first))
        self._next = first + len(self._played)
        self._weights: dict[int, list[tuple[str, Tensor]]] = {}
        self._released = first - 1  # the newest version that the thread may play with: none yet
        self._failure: BaseException | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def take(self, update: int) -> Collected:
        """Let the thread play on with the newest weights, and return the rollout of an update once it is there.

        Raises:
            BaseException: what ended the thread, unless this rollout was played before.
        """
        self._release(self.version)
        with self._changed:
            self._changed.wait_for(lambda: update in self._played or self._failure is not None)
            if update in self._played:
                return self._played.pop(update)
            assert self._failure is not None
            raise self._failure

    def hold(self, weights: list[tuple[str, Tensor]]) -> int:
        """Keep the weights that an update made, and return their version; the next ``take`` lets the thread have them.

        At most ``level`` versions are held.
        """
        with self._changed:
            # Near the end no rollout is left that would be played with the versions before.
            self._weights = {old: held for old, held in self._weights.items() if old + self._level < self._updates}
            self.version += 1
            self._weights[self.version] = weights
        return self.version

    def settle(self) -> list[Collected]:
        """Wait until the thread stands still, and return what it has played and nobody took, in order; it stays.

        Raises:
            BaseException: what ended the thread.
        """
        end = min(self._released + self._level + 1, self._updates)
        with self._changed:
            if self._thread is not None:
                self._changed.wait_for(lambda: self._next >= end or self._failure is not None)
            if self._failure is not None:
                raise self._failure
            return [self._played[update] for update in sorted(self._played)]

    def refresh(self) -> None:
        """Give the sampler the newest weights, once the thread stands still. Raises as ``settle`` does."""
        self.settle()
        self._load(self.version)

    def close(self) -> None:
        """End the thread: what it plays is abandoned."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._stop.ask()
        if self._thread is not None:
            self._thread.join(_GRACE_S)

    def _release(self, version: int) -> None:
        with self._changed:
            self._released = version
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="agentr1-rollouts", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        try:
            for update in range(self._next, self._updates):
                version = max(self._first, update - self._level)
                with self._changed:
                    self._changed.wait_for(lambda version=version: self._released >= version or self._ended)
                    if self._ended:
                        return
                self._load(version)
                started = time.perf_counter()
                collected = self._play(update)
                seconds = {"time/play": time.perf_counter() - started}
                with self._changed:
                    self._played[update] = replace(collected, metrics=collected.metrics | seconds)
                    self._next = update + 1
                    self._changed.notify_all()
        except BaseException as failure:  # the main thread raises it, whatever it is
            with self._changed:
                self._failure = failure
                self._changed.notify_all()

    def _load(self, version: int) -> None:
        if self._sampler.policy_version == version:
            return
        with self._changed:
            weights = self._weights.pop(version)
        self._sampler.load_weights(version, weights)
