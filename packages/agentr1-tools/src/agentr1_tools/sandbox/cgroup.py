"""Control groups (Linux): where one can be made, memory and number of processes are limited for a whole run.

One is made below or beside the group this process is in, so every limit set above still holds. Where that is not
allowed, which is common, there is none, and the limits of each process are all there is.
"""

import contextlib
import os
import time
from collections.abc import Generator
from pathlib import Path

from agentr1_tools.sandbox.limits import Limits
from agentr1_tools.worker import processes

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "agentr1-"
_CONTROLLERS = ("memory", "pids")
_SPARE_PROCESSES = 4  # bubblewrap's own
_JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@"'


def candidates(root: Path = _ROOT, membership: str | None = None) -> list[tuple[Path, ...]]:
    """Places to try, each a folder (version 2) or one for each controller (version 1).

    membership: the text of /proc/self/cgroup.
    """
    if membership is None:
        try:
            membership = Path("/proc/self/cgroup").read_text(encoding="utf-8")
        except OSError:
            return []
    own = {
        name: line[2] for entry in membership.splitlines() for line in [entry.split(":", 2)] for name in _names(line)
    }
    if (root / "cgroup.controllers").exists():
        here = root / own.get("", "/").strip("/")
        return [(here,)] if here == root else [(here,), (here.parent,)]
    if not all((root / controller).is_dir() for controller in _CONTROLLERS):
        return []
    here = [root / controller / own.get(controller, "/").strip("/") for controller in _CONTROLLERS]
    # Inside a container the path may be the host's, while the folder shown is already the container's.
    return [tuple(place if place.is_dir() else root / name for place, name in zip(here, _CONTROLLERS, strict=True))]


def find(limits: Limits) -> tuple[Path, ...]:
    """The first place where a group with these limits can be made; empty where there is none."""
    for parents in candidates():
        sweep(parents)
        with contextlib.suppress(OSError), group(parents, limits):
            return parents
    return ()


@contextlib.contextmanager
def group(parents: tuple[Path, ...], limits: Limits) -> Generator[list[str]]:
    """A new group in each of `parents`, and what to put before a command line to start it there. Raises OSError."""
    folders = [parent / f"{_PREFIX}{os.getpid()}-{time.monotonic_ns()}" for parent in parents]
    try:
        for folder in folders:
            folder.mkdir()
            _write(folder, limits)
        yield ["/bin/sh", "-c", _JOIN, "sh", *map(str, folders), "--"] if folders else []
    finally:
        for folder in folders:
            _remove(folder)


def settings(limits: Limits) -> dict[str, str]:
    """What is written into which file, of those that exist."""
    return {
        "memory.max": str(limits.total_bytes),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "memory.limit_in_bytes": str(limits.total_bytes),
        "memory.memsw.limit_in_bytes": str(limits.total_bytes),
        "pids.max": str(limits.processes + _SPARE_PROCESSES),
    }


def _write(folder: Path, limits: Limits) -> None:
    present = {name: text for name, text in settings(limits).items() if (folder / name).exists()}
    if not present:
        raise OSError(f"{folder} has no limits to set")
    for name, text in present.items():
        (folder / name).write_text(text, encoding="utf-8")


def _names(line: list[str]) -> list[str]:
    return line[1].split(",") if len(line) == 3 else []


def _remove(folder: Path, seconds: float = 2.0) -> None:
    """Kill what is left in a group, then remove it."""
    deadline = time.monotonic() + seconds
    while folder.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            for pid in map(int, (folder / "cgroup.procs").read_text(encoding="utf-8").split()):
                if pid > 0:  # 0 stands for a process that cannot be seen from here
                    processes.kill(pid)
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.001)


def sweep(parents: tuple[Path, ...]) -> None:
    """Remove empty groups whose makers were killed before they could."""
    for folder in (entry for parent in parents for entry in parent.glob(f"{_PREFIX}*")):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not Path("/proc", owner).exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
