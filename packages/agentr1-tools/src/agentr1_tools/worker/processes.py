"""Finding and ending whole trees of processes, on Linux through /proc."""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans, so none can slip out of its tree (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root: int) -> list[int]:
    """Process ids below `root`, parents before children."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
                # The name in parentheses may hold anything; the parent's id is the second field after it.
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def has_children() -> bool:
    """True when this process has a child, dead or alive; reaps nothing."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill(pid: int) -> None:
    """SIGKILL one process, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def kill_below(root: int, keep: frozenset[int] = frozenset()) -> None:
    """Kill every descendant of `root` outside `keep`, until a look finds none that is new."""
    killed: set[int] = set()
    while new := [pid for pid in descendants(root) if pid not in killed and pid not in keep]:
        for pid in new:
            kill(pid)
        killed.update(new)


def kill_tree(root: int) -> None:
    """Kill `root` and all below it: `root` is stopped first, so that it starts nothing more meanwhile."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(root, signal.SIGSTOP)
    kill_below(root)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(root, signal.SIGKILL)
    kill(root)


class Handle:
    """Holds on to one process, so that its number is never mistaken for a later process with the same (Linux)."""

    def __init__(self, pid: int) -> None:
        if pid <= 0:
            raise ValueError(f"{pid} names no single process")
        self._pid = pid
        self._descriptor: int | None = None
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                self._descriptor = os.pidfd_open(pid)

    def kill_tree(self) -> None:
        """Kill the process and all below it; of a process that has ended, what is left of its group."""
        if self.alive():
            kill_tree(self._pid)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)

    def alive(self) -> bool:
        """False once the process has ended, reaped or not."""
        if self._descriptor is None:
            return sys.platform != "linux"  # there, no descriptor means that it was gone at once
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Let go of the process."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def wait_for_children() -> None:
    """Wait until this process has no child left."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def reap_killed(keep: frozenset[int], seconds: float = 1.0) -> None:
    """Collect what `kill_below` killed: on a busy machine a killed process does not end at once."""
    deadline = time.monotonic() + seconds
    while True:
        reap_strays()
        if not set(descendants(os.getpid())) - keep or time.monotonic() > deadline:
            return
        time.sleep(0.001)


def reap_strays() -> None:
    """Collect children that have ended, so that none stays a zombie."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
