"""What runs inside a worker process: one tool, one call after another, over one channel.

Nothing a tool does here reaches the parent's stdout, and what it leaves running is killed after each call.
"""

import asyncio
import contextlib
import gc
import inspect
import os
import signal
import socket
import sys
from typing import Any, cast

from agentr1_tools.base import BaseTool
from agentr1_tools.errors import ErrorCode
from agentr1_tools.result import ToolResult, from_exception, normalise, normalise_batch
from agentr1_tools.worker import processes
from agentr1_tools.worker.channel import Channel, ChannelClosed

OPEN_SECONDS = 120.0
_CHANNEL_FD = 3
_BACKSTOP_SECONDS = 5.0
_SIGNALS = (signal.SIGALRM, signal.SIGCHLD, signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM)


def enter(channel_fd: int, tool: BaseTool) -> None:
    """Turn a process that was just forked into a worker. Does not return."""
    status = 1
    try:
        gc.freeze()  # what the parent owned is never collected here: a late close would hit a descriptor that is ours
        with contextlib.closing(Channel(_detach(channel_fd))) as channel:
            serve(channel, tool)
        status = 0
    except BaseException as error:
        with contextlib.suppress(Exception):
            print(f"agentr1-tools worker of {tool.name}: {error!r}", file=sys.stderr, flush=True)
    finally:
        with contextlib.suppress(Exception):
            if processes.has_children():
                processes.kill_below(os.getpid())
        os._exit(status)


def guard(channel_fd: int, report_fd: int, tool: BaseTool) -> None:
    """Turn a process that was just forked into the guardian of one worker. Does not return.

    It forks the worker, reports its process id, and reaps whatever the worker leaves, until nothing is left.
    """
    try:
        gc.freeze()
        os.setsid()
        processes.adopt_orphans()
        _reset_signals()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
        pid = os.fork()
        if pid == 0:
            enter(channel_fd, tool)
        os.write(report_fd, pid.to_bytes(8, "big"))
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        processes.wait_for_children()
    finally:
        os._exit(0)


def _reset_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _detach(channel_fd: int) -> socket.socket:
    """Cut what ties this process to its parent: session, signals, standard streams, descriptors."""
    os.setsid()
    _reset_signals()
    processes.adopt_orphans()
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    if channel_fd != _CHANNEL_FD:
        os.dup2(channel_fd, _CHANNEL_FD)
    os.closerange(_CHANNEL_FD + 1, os.sysconf("SC_OPEN_MAX"))
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False, buffering=1)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False, buffering=1)  # noqa: SIM115
    return socket.socket(fileno=_CHANNEL_FD)


def serve(channel: Channel, tool: BaseTool) -> None:
    """Open the tool, say whether that worked, then answer calls until the other side closes the channel."""
    try:
        signal.setitimer(signal.ITIMER_REAL, OPEN_SECONDS + _BACKSTOP_SECONDS)
        tool.open()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException as error:
        channel.send({"ready": False, "error": f"{type(error).__name__}: {error}"})
        return
    channel.send({"ready": True, "error": ""})
    own = frozenset(processes.descendants(os.getpid())) if processes.has_children() else frozenset[int]()
    runner = asyncio.Runner()  # makes its loop when a tool first asks for one
    while True:
        try:
            request = channel.receive()
        except ChannelClosed:
            break
        # Holds even when the parent is gone and the tool keeps the interpreter lock: the kernel ends this process.
        signal.setitimer(signal.ITIMER_REAL, float(request["timeout"]) + _BACKSTOP_SECONDS)
        if "batch" in request:
            answer: Any = _execute_batch(tool, request["batch"], runner)
        else:
            answer = _as_message(_execute(tool, request["params"], runner))
        signal.setitimer(signal.ITIMER_REAL, 0)
        if processes.has_children():
            processes.kill_below(os.getpid(), keep=own)
            processes.reap_killed(keep=own)
        _answer(channel, answer)
    runner.close()
    tool.close()


def _execute(tool: BaseTool, params: dict[str, Any], runner: asyncio.Runner) -> ToolResult:
    try:
        returned: object = tool.execute(params)
        if inspect.isawaitable(returned):
            returned = runner.run(_await(returned))
        return normalise(returned)
    except BaseException as error:
        return from_exception(error)


def _execute_batch(tool: BaseTool, batch: list[dict[str, Any]], runner: asyncio.Runner) -> list[dict[str, Any]] | None:
    """Messages of a batch, or None when it failed as a whole."""
    try:
        returned: object = tool.execute_batch(batch)
        if inspect.isawaitable(returned):
            returned = runner.run(_await(returned))
        results = normalise_batch(returned, len(batch))
    except BaseException as error:
        print(f"agentr1-tools worker of {tool.name}: a batch failed: {error!r}", file=sys.stderr, flush=True)
        return None
    return None if results is None else [_as_message(result) for result in results]


async def _await(awaitable: Any) -> object:
    return cast(object, await awaitable)


def _answer(channel: Channel, answer: dict[str, Any] | list[dict[str, Any]] | None) -> None:
    try:
        channel.send(answer)
    except ValueError as error:
        if isinstance(answer, dict):
            failure = ToolResult.failure(ErrorCode.INVALID_RESULT, f"the result is too large: {error}")
            channel.send(_as_message(failure))
        else:  # too large together; one by one they may not be
            channel.send(None)


def _as_message(result: ToolResult) -> dict[str, Any]:
    return {
        "status": result.status,
        "data": result.data,
        "error": result.error,
        "text": result.text,
        "metrics": dict(result.metrics),
    }
