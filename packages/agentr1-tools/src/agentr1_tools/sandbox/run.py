"""Runs one command with a time limit, and reads what it prints while it runs. Knows nothing of sandboxes."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, cast

from agentr1_tools.sandbox.guest import READY
from agentr1_tools.worker import processes

_CHUNK = 65536
_TICK = 0.02
_MARK = "\n[... {cut} bytes cut ...]\n"


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    started: the program inside was reached; without it, `stderr` is the launcher's.
    timed_out: it was killed at the limit.
    exit_code: of the program; negative, or 128 and its number, when a signal ended it; None when it was killed at the
        limit.
    stdout, stderr: what it printed, at most `output_bytes` each, with a mark where the middle was cut.
    """

    started: bool
    timed_out: bool
    exit_code: int | None
    stdout: str
    stderr: str

    @property
    def signal(self) -> int:
        """Number of the signal that ended the program, or 0."""
        code = self.exit_code or 0
        number = -code if code < 0 else code - 128
        return number if number in signal.valid_signals() else 0


class Clipped:
    """Keeps the head and the tail of a stream, `limit` bytes together, whatever is fed to it."""

    def __init__(self, limit: int) -> None:
        self._room = (limit + 1) // 2
        self._tail_room = limit - self._room
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = 0

    def feed(self, part: bytes) -> None:
        """Take what was read."""
        missing = self._room - len(self._head)
        self._head += part[:missing]
        self._tail += part[missing:]
        if len(self._tail) > self._tail_room + _CHUNK:
            self._trim()

    def drop_prefix(self, prefix: bytes) -> bool:
        """Remove this beginning; False when the stream begins otherwise."""
        found = self._head.startswith(prefix)
        if found:
            del self._head[: len(prefix)]
        return found

    def text(self) -> str:
        """What was kept, with a mark where something is missing."""
        self._trim()
        mark = _MARK.format(cut=self._cut).encode() if self._cut else b""
        return bytes(self._head + mark + self._tail).decode("utf-8", "replace")

    def _trim(self) -> None:
        surplus = len(self._tail) - self._tail_room
        if surplus > 0:
            del self._tail[:surplus]
            self._cut += surplus


def run(
    command: Sequence[str], *, stdin: bytes, seconds: float, output_bytes: int, environment: Mapping[str, str]
) -> Outcome:
    """Start the command, give it `stdin`, and wait for its end, but no longer than `seconds`.

    It is the end of the command that counts: a child of it that still holds its output is not waited for. When this
    returns, the command and its process group are dead and it has been reaped. Raises OSError when it cannot start.
    """
    deadline = time.monotonic() + seconds
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd="/",
        start_new_session=True,
    )
    kept = {"stdout": Clipped(output_bytes + len(READY)), "stderr": Clipped(output_bytes)}
    with _Streams(process, stdin, kept) as streams:
        ended = False
        try:
            ended = _wait(process.pid, streams, deadline)
        finally:
            _end(process, ended=ended)
    started = kept["stdout"].drop_prefix(READY)
    return Outcome(started, not ended, process.returncode if ended else None, *(kept[name].text() for name in kept))


class _Streams:
    """The three pipes to a process, none of which blocks."""

    def __init__(self, process: "subprocess.Popen[bytes]", stdin: bytes, kept: Mapping[str, Clipped]) -> None:
        self._selector = selectors.DefaultSelector()
        self._unsent = memoryview(stdin)
        self._pipes = cast("list[IO[bytes]]", [process.stdin, process.stdout, process.stderr])
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        self._selector.register(self._pipes[0], selectors.EVENT_WRITE, None)
        self._selector.register(self._pipes[1], selectors.EVENT_READ, kept["stdout"])
        self._selector.register(self._pipes[2], selectors.EVENT_READ, kept["stderr"])

    def __enter__(self) -> "_Streams":
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.close()

    @property
    def open(self) -> bool:
        """False once nothing can come any more."""
        return bool(self._selector.get_map())

    def pump(self, seconds: float) -> bool:
        """Move what can be moved, waiting up to `seconds` for it; False when there was nothing."""
        events = self._selector.select(seconds)
        for key, _ in events:
            pipe = cast("IO[bytes]", key.fileobj)
            if not (self._send() if key.data is None else self._receive(key.fd, key.data)):
                self._selector.unregister(pipe)
                pipe.close()
        return bool(events)

    def _send(self) -> bool:
        try:
            sent = os.write(self._pipes[0].fileno(), self._unsent[:_CHUNK]) if self._unsent else 0
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._unsent = self._unsent[sent:]
        return bool(self._unsent)

    def _receive(self, descriptor: int, kept: Clipped) -> bool:
        try:
            part = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        kept.feed(part)
        return bool(part)


def _wait(pid: int, streams: _Streams, deadline: float) -> bool:
    """Pump until the process has ended; False at the deadline."""
    while (left := deadline - time.monotonic()) > 0:
        if streams.open:
            streams.pump(min(left, _TICK))
        else:
            time.sleep(min(left, 0.001))
        if _has_ended(pid):
            for _ in range(64):  # what is in the pipes; a child may hold them, and go on writing for ever
                if not (streams.open and streams.pump(0)):
                    break
            return True
    return False


def _has_ended(pid: int) -> bool:
    """True for a process that has ended and was not reaped, so that its number is still its own."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(process: "subprocess.Popen[bytes]", *, ended: bool) -> None:
    """Kill the whole group, and everything below a process that has not ended; reap it."""
    if ended:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        processes.kill_tree(process.pid)
    process.wait()
