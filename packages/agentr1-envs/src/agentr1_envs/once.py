"""Open a thing once a process and share it, between threads and past a fork."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Opened = TypeVar("Opened")


class ForkSafeLock:
    """A lock that is free in a forked child: its parent's may be held by a thread the child does not have."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()


class OncePerProcess(Generic[Opened]):
    """Keeps what was opened last, by key; a forked child keeps what its parent had opened."""

    def __init__(self, kept: int) -> None:
        """Keep at most `kept` things; the one used longest ago goes first."""
        self._kept = kept
        self._opened: OrderedDict[Hashable, Opened] = OrderedDict()
        self._lock = ForkSafeLock()

    def get(self, key: Hashable, open_it: Callable[[], Opened]) -> Opened:
        """What `open_it` gave for this key when it was first asked for; errors are not kept."""
        with self._lock:
            if key not in self._opened:
                self._opened[key] = open_it()
            self._opened.move_to_end(key)
            while len(self._opened) > self._kept:
                self._opened.popitem(last=False)
            return self._opened[key]


class SharedWhileUsed(Generic[Opened]):
    """Shares a thing as long as somebody holds it; a forked child opens its own."""

    def __init__(self) -> None:
        self._held: WeakValueDictionary[tuple[int, Hashable], Opened] = WeakValueDictionary()
        self._lock = ForkSafeLock()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Hashable, open_it: Callable[[], Opened]) -> Opened:
        """What somebody in this process holds for this key, or what `open_it` gives."""
        with self._lock:
            found = self._held.get((os.getpid(), key))
            if found is None:
                found = self._held[os.getpid(), key] = open_it()
            return found
