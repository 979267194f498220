"""SIGTERM: finish the running update, write a checkpoint, end with a code of its own.

A rank cannot stop by itself, since the others would wait for it; so all ranks agree at the end of every update. A rank
whose neighbour is gone waits in C code, where no Python handler runs: there a thread reads the signal and ends the
process, once a rank of this host is missing. Ctrl-C is not handled here.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from agentr1_train import distributed
from agentr1_train.errors import LOST_RANK, is_lost_rank

LOST_RANK_EXIT_CODE = 2


class StopRequest:
    """Notes SIGTERM while it is entered. Outside the main thread, where Python allows no handler, it notes nothing."""

    def __init__(self) -> None:
        self._asked = False
        self._before: Any = None
        self._writer = -1

    def requested(self) -> bool:
        """Return whether any rank was told to stop: the same on every rank. A collective call."""
        return distributed.all_reduce({"stop": float(self._asked)}, "max")["stop"] > 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            if distributed.local_world_size() > 1:
                self._watch()
            self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is None:
            return
        # A rank that lost another has a line to write and then ends: the launcher's signal must not come before it.
        lost = error is not None and is_lost_rank(error)
        signal.signal(signal.SIGTERM, signal.SIG_IGN if lost else self._before)
        self._before = None
        if self._writer >= 0:
            signal.set_wakeup_fd(-1)
            os.close(self._writer)  # the thread reads the end of the pipe, closes its own end and returns
            self._writer = -1

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked = True

    def _watch(self) -> None:
        reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        threading.Thread(target=_end_when_alone, args=(reader,), name="agentr1-stop", daemon=True).start()


def _end_when_alone(reader: int) -> None:
    """After SIGTERM, end this process as soon as a rank of this host is missing."""
    told = False
    while not told:
        numbers = os.read(reader, 64)
        if not numbers:
            os.close(reader)
            return
        told = signal.SIGTERM in numbers
    while True:
        ranks = siblings()
        if ranks is not None and ranks < distributed.local_world_size():
            say_lost_rank()
            os._exit(LOST_RANK_EXIT_CODE)
        time.sleep(0.2)


def siblings() -> int | None:
    """Return how many processes the launcher that started this one still has; None where that cannot be read."""
    launcher = os.getppid()
    found = 0
    try:
        children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    except OSError:
        return None
    for child in children:
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
            found += state not in "ZX"
    return found


def say_lost_rank() -> None:
    """Write the one line that a rank leaves when another one is gone."""
    print(f"agentr1-train: [rank {os.environ.get('RANK', '0')}] {LOST_RANK}", file=sys.stderr, flush=True)
