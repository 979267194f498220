"""Runs the application on a port until Ctrl-C or SIGTERM, and says in one line each when it starts and stops."""

import contextlib
import logging
import signal
import socket
from collections.abc import Generator
from types import FrameType

import uvicorn
from fastapi import FastAPI

from agentr1_envs.errors import SettingError
from agentr1_envs.serving.app import GRACE_SECONDS

NAME = "agentr1-envs"


class _Server(uvicorn.Server):
    """uvicorn, which says that it heard the signal."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        first = not self.should_exit
        super().handle_exit(sig, frame)  # before it is said: another signal may come at any moment
        if first:
            print(f"{NAME}: stopping; environments at work have {GRACE_SECONDS:g} s (Ctrl-C again: none)", flush=True)
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # a call that is cut off now is no fault


def run(app: FastAPI, host: str, port: int, what: str, max_message_bytes: int) -> None:
    """Serve until a signal; `what` is said in the first line, with the address. Port 0 takes a free one.

    Raises:
        SettingError: the port cannot be had.
    """
    with _listen(host, port) as listener, _sigterm_as_ctrl_c():
        shown = f"[{host}]" if ":" in host else host
        print(f"{NAME}: {what} at ws://{shown}:{listener.getsockname()[1]} (Ctrl-C stops)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            _Server(server_config(app, max_message_bytes)).run(sockets=[listener])
    print(f"{NAME}: stopped", flush=True)


def server_config(app: FastAPI, max_message_bytes: int) -> uvicorn.Config:
    """How uvicorn runs the application."""
    return uvicorn.Config(
        app,
        lifespan="on",
        ws="websockets-sansio",
        ws_max_size=max_message_bytes,
        ws_per_message_deflate=False,
        log_level="error",
        access_log=False,
        timeout_graceful_shutdown=1,  # its connections are closed already; the environments have their own time
    )


def is_local(host: str) -> bool:
    """True for this machine's own addresses, which nobody else reaches."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    problem = "a port is a number from 0 to 65535"
    if 0 <= port <= 65535:
        try:
            return socket.create_server((host, port), family=family, backlog=1024)
        except OSError as error:
            problem = (error.strerror or str(error)).partition(" (while")[0]
    raise SettingError(
        f"cannot listen on {host}, port {port}: {problem}; choose another --host or --port (0 takes a free port)"
    )


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Generator[None]:
    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)  # uvicorn raises the signal again when it has stopped
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
