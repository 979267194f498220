"""The nursery: a clean, single-threaded process that forks workers.

So a worker never comes out of a process with threads, GPUs or open connections, and starting one again after a kill
takes milliseconds, not an interpreter start. One nursery serves all tool boxes of a process; it ends when the last of
them closes, or when its parent is gone.
"""

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

from agentr1_tools.base import BaseTool
from agentr1_tools.worker import processes
from agentr1_tools.worker.channel import Channel, ChannelClosed
from agentr1_tools.worker.serve import enter

_START_SECONDS = 60.0
_MAX_TOOL_BYTES = 16 * 1024 * 1024
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from agentr1_tools.worker.nursery import run; run(int(sys.argv[1]))"
)


class NurseryError(RuntimeError):
    """The nursery cannot start this tool: it cannot be sent there, or cannot be imported there."""


class NurseryGoneError(RuntimeError):
    """The nursery has ended; another one may work."""


class Nursery:
    """The parent's side. Raises NurseryGoneError when no process can be had."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._channel = Channel(ours)
        self._lock = threading.Lock()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), json.dumps(sys.path)],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise NurseryGoneError(f"the nursery cannot start: {error}") from error

    def fork(self, tool: bytes, channel_fd: int) -> int:
        """Fork a worker for a pickled tool that speaks over this descriptor; returns its process id.

        Raises NurseryError when that tool cannot be had there, NurseryGoneError when the nursery is of no more use.
        """
        if len(tool) > _MAX_TOOL_BYTES:
            raise NurseryError(f"the pickled tool has {len(tool)} bytes; open large things in open()")
        with self._lock:
            try:
                socket.send_fds(self._socket, [len(tool).to_bytes(8, "big")], [channel_fd])
                self._socket.sendall(tool)
                answer: dict[str, Any] = self._channel.receive(_START_SECONDS)
            except OSError as error:
                self._process.kill()
                raise NurseryGoneError(f"the nursery does not answer: {error!r}") from None
        if answer["error"]:
            raise NurseryError(answer["error"])
        return int(answer["pid"])

    def alive(self) -> bool:
        """False once the nursery has ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the nursery; its workers end by their own channels."""
        self._channel.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """Drop the parent's handle in a forked child, without ending the nursery."""
        self._channel.close()
        self._process.returncode = 0


class _Shared:
    """The nursery of this process and the number of its users."""

    def __init__(self) -> None:
        self._nursery: Nursery | None = None
        self._users = 0
        self._lock = threading.Lock()

    def acquire(self) -> None:
        with self._lock:
            self._users += 1

    def get(self) -> Nursery:
        with self._lock:
            if self._nursery is not None and not self._nursery.alive():
                self._nursery.close()
                self._nursery = None
            if self._nursery is None:
                self._nursery = Nursery()
            return self._nursery

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._nursery is not None:
                self._nursery.close()
                self._nursery = None

    def forget(self) -> None:
        """In a forked child: the nursery belongs to the parent."""
        self._lock = threading.Lock()
        self._users = 0
        if self._nursery is not None:
            self._nursery.forget()
            self._nursery = None


shared = _Shared()
os.register_at_fork(after_in_child=shared.forget)


def run(descriptor: int) -> None:
    """The nursery's own loop: receive a tool and a descriptor, fork, answer with the process id."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tools: dict[bytes, BaseTool] = {}
    processes.adopt_orphans()  # what a killed worker leaves comes here, and is reaped
    connection = socket.socket(fileno=descriptor)
    channel = Channel(connection)
    with contextlib.suppress(ChannelClosed):
        while True:
            header, descriptors, _, _ = socket.recv_fds(connection, 8, 1)
            if not header:
                break
            body = _exactly(connection, int.from_bytes(header, "big"))
            pid, problem = 0, ""
            try:
                if body not in tools:
                    tools[body] = pickle.loads(body)
                pid = os.fork()
            except BaseException as error:
                problem = f"{type(error).__name__}: {error}"
            if pid == 0 and not problem:
                enter(descriptors[0], tools[body])
            os.close(descriptors[0])
            channel.send({"pid": pid, "error": problem})
    processes.kill_below(os.getpid())
    processes.wait_for_children()


def _exactly(connection: socket.socket, count: int) -> bytes:
    body = bytearray()
    while len(body) < count:
        part = connection.recv(count - len(body))
        if not part:
            raise ChannelClosed("the parent closed the channel")
        body += part
    return bytes(body)
