"""Rollouts: P seeds times G copies, played side by side, returned as groups in a fixed order.

Deterministic: which episodes are played, in which order, and the noise of each depend on the given keys only. It keeps
no state between calls and computes no credit.
"""

import asyncio
import contextlib
import dataclasses
import hashlib
import signal
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from agentr1_train.flow import AgentFlow
from agentr1_train.pools import EpisodeTask, Pool, play_episode
from agentr1_train.sampler.base import Sampler
from agentr1_train.sampler.batching import PATIENCE_S, BatchingSampler
from agentr1_train.trajectory import Trajectory, TrajectoryGroup

TRAIN_STREAM, EVALUATION_STREAM = 0, 1
"""Second entry of a noise key: training and evaluation never share noise or seeds. Greedy rollouts read no noise."""

_T = TypeVar("_T")

Progress = Callable[[int, int], None]
"""``progress(episodes done, episodes in all)``, called in the event loop's thread."""


class Stop:
    """Ends a ``collect`` that runs in another thread, and every later one, as Ctrl-C does in the main thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = False
        self._cancel: Callable[[], object] | None = None

    def ask(self) -> None:
        """Let the ``collect`` raise ``asyncio.CancelledError`` once its episodes have let go. Does not wait."""
        with self._lock:
            self._asked = True
            if self._cancel is not None:
                self._cancel()

    @contextlib.contextmanager
    def calls(self, cancel: Callable[[], object]) -> Iterator[None]:
        """Call ``cancel`` when asked to within the block, at once where that has been."""
        with self._lock:
            self._cancel = cancel
            if self._asked:
                cancel()
        try:
            yield
        finally:
            with self._lock:
                self._cancel = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """One group to be played: G episodes from one start."""

    index: int
    """Global index of the group in its update."""
    seed: int
    options: Mapping[str, Any] | None = None
    """Handed to ``reset`` beside the seed."""


def group_seed(run_seed: int, update: int, index: int, stream: int = TRAIN_STREAM) -> int:
    """Return the environment seed of a group, in [0, 2**31): a pure function, the same on every rank and on resume."""
    packed = struct.pack("<4q", run_seed, stream, update, index)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little") & 0x7FFFFFFF


def update_groups(
    run_seed: int, update: int, groups: int, *, first: int = 0, rank: int = 0, world: int = 1
) -> list[GroupSpec]:
    """Return the groups that ``rank`` plays in an update: of ``groups`` from ``first`` on, those of its residue class.

    A group's index is global; it belongs to the rank that is its index modulo ``world``.
    """
    mine = (index for index in range(first, first + groups) if index % world == rank)
    return [GroupSpec(index, group_seed(run_seed, update, index)) for index in mine]


def collect(
    pool: Pool,
    sampler: Sampler,
    flow: AgentFlow,
    groups: Sequence[GroupSpec],
    *,
    group_size: int,
    key: tuple[int, ...],
    concurrency: int,
    patience_s: float = PATIENCE_S,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> list[TrajectoryGroup]:
    """Play all episodes and return their groups, in the order of ``groups``, members in order.

    Args:
        pool: environments in this process, or what plays episodes elsewhere.
        sampler: samples the responses; its weights must not change meanwhile.
        flow: plays one episode.
        groups: what to play.
        group_size: G.
        key: seeds the noise, such as ``(run seed, stream, update)``; group, member and step are appended.
        concurrency: episodes in flight.
        patience_s: how long sampling waits for those whose environment is slow, until one is late.
        progress: told after every episode.
        stop: ends it from another thread.

    Raises:
        CancelledError: ``stop`` was asked.
        EnvironmentLoadError: a further environment could not be made.
        KeyboardInterrupt: on Ctrl-C, at once; running environments are abandoned.
        RuntimeError: called inside a running event loop; await ``collect_async`` there.
    """
    main = collect_async(
        pool,
        sampler,
        flow,
        groups,
        group_size=group_size,
        key=key,
        concurrency=concurrency,
        patience_s=patience_s,
        progress=progress,
    )
    return asyncio.run(_stoppable(main, stop)) if stop is not None else _run(main)


async def collect_async(
    pool: Pool,
    sampler: Sampler,
    flow: AgentFlow,
    groups: Sequence[GroupSpec],
    *,
    group_size: int,
    key: tuple[int, ...],
    concurrency: int,
    patience_s: float = PATIENCE_S,
    progress: Progress | None = None,
) -> list[TrajectoryGroup]:
    """``collect`` for callers that have an event loop."""
    batching = BatchingSampler(sampler, patience_s=patience_s)
    total = len(groups) * group_size
    played: dict[tuple[int, int], list[Trajectory]] = {}
    todo = iter([(group, member) for group in groups for member in range(group_size)])

    async def play(group: GroupSpec, member: int) -> None:
        task = EpisodeTask(group.seed, group.options, group.index, member, (*key, group.index, member))
        played[group.index, member] = await play_episode(pool, flow, task, batching)
        if progress is not None:
            progress(len(played), total)

    try:
        await _play_all(batching, todo, play, min(concurrency, total))
    finally:
        await batching.close()
    return [_group(spec, [played[spec.index, member] for member in range(group_size)]) for spec in groups]


def failures(trajectories: Iterable[Trajectory]) -> tuple[float, str]:
    """Return the fraction of trajectories that ended as ``error``, and their commonest reason (empty without one)."""
    reasons = [trajectory.error for trajectory in trajectories]
    failed = Counter(reason for reason in reasons if reason is not None)
    if not failed:
        return 0.0, ""
    return failed.total() / len(reasons), failed.most_common(1)[0][0]


async def _stoppable(main: Coroutine[Any, Any, _T], stop: Stop) -> _T:
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(main)
    with stop.calls(lambda: loop.call_soon_threadsafe(task.cancel)):
        return await task


def _run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run to the end. Ctrl-C cancels, and is raised once everything has let go, however often it was pressed.

    ``asyncio.run`` alone lets a second Ctrl-C tear down the loop under the episodes that are still letting go.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return asyncio.run(main)  # Ctrl-C is not for this thread, is ignored, or is the business of somebody else
    interrupted = threading.Event()

    async def cancellable() -> _T:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(main)

        def cancel(*_: object) -> None:
            if not interrupted.is_set():
                interrupted.set()
                loop.call_soon_threadsafe(task.cancel)

        signal.signal(signal.SIGINT, cancel)
        try:
            return await task
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        if interrupted.is_set():
            raise KeyboardInterrupt from None
        raise


async def _play_all(
    batching: BatchingSampler, todo: Iterator[tuple[GroupSpec, int]], play: Callable[..., Any], width: int
) -> None:
    """Play episodes in ``width`` places; the first failure of the model's side cancels all of them."""

    async def place() -> None:
        async with batching.slot():
            for group, member in todo:  # shared by all places: each takes the next episode
                batching.renew()
                await play(group, member)

    places = [asyncio.create_task(place()) for _ in range(width)]
    try:
        await asyncio.gather(*places)
    finally:
        for task in places:
            task.cancel()
        await asyncio.gather(*places, return_exceptions=True)


def _group(spec: GroupSpec, members: list[list[Trajectory]]) -> TrajectoryGroup:
    """Join the members' trajectories; where a flow branched, members are numbered anew so that keys stay unique."""
    flat: list[Trajectory] = []
    for trajectories in members:
        first = len(flat)
        for item in trajectories:
            origin = None if item.origin is None else first + item.origin
            flat.append(dataclasses.replace(item, member=len(flat), origin=origin))
    return TrajectoryGroup(spec.index, spec.seed, tuple(flat))
