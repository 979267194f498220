"""Runs an application on a port until Ctrl-C or SIGTERM, and says in one line each when it starts and stops."""

import contextlib
import logging
import signal
import socket
from types import FrameType

import uvicorn

from agentr1_tools.errors import ToolConfigError
from agentr1_tools.serving.gate import App

GRACE_SECONDS = 5


class _Server(uvicorn.Server):
    """uvicorn, which says that it heard the signal."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        first = not self.should_exit
        super().handle_exit(sig, frame)  # before it is said: another signal may come at any moment
        if first:
            print(f"agentr1-tools: stopping; requests at work have {GRACE_SECONDS} s (Ctrl-C again: none)", flush=True)
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # a request that is cut off now is no fault


def run(app: App, host: str, port: int, what: str) -> None:
    """Serve until a signal; `what` is said in the first line, with the address.

    Port 0 takes a free one. Requests at work when the signal comes may finish within `GRACE_SECONDS`. Raises
    ToolConfigError when the port cannot be had.
    """
    with _listen(host, port) as listener:
        config = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_level="error",
            access_log=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        shown = f"[{host}]" if ":" in host else host
        before = signal.signal(signal.SIGTERM, _interrupt)  # uvicorn raises the signal again when it has stopped
        try:
            print(f"agentr1-tools: {what} at http://{shown}:{listener.getsockname()[1]} (Ctrl-C stops)", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                _Server(config).run(sockets=[listener])
        finally:
            signal.signal(signal.SIGTERM, before)
    print("agentr1-tools: stopped", flush=True)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    problem = "a port is a number from 0 to 65535"
    if 0 <= port <= 65535:
        try:
            return socket.create_server((host, port), family=family, backlog=1024)
        except OSError as error:
            problem = (error.strerror or str(error)).partition(" (while")[0]
    raise ToolConfigError(
        f"cannot listen on {host}, port {port}: {problem}; choose another --host or --port (0 takes a free port)"
    )


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
