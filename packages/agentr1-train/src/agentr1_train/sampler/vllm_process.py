"""Starts vLLM's OpenAI-compatible server as a process of its own, and ends it. ``vllm_server.py`` talks to it.

The server writes its messages into a file, whose last lines an error shows. It ends with the process that started it.
"""

import contextlib
import ctypes
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentr1_train.errors import ConfigError, RunFailedError

START_S = 1800.0
"""Seconds a server may take to load its model."""
_END_S = 5.0
"""Seconds that a server which closed its connections has to end."""
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_LAUNCHER_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_SIZE", "LOCAL_WORLD_SIZE")


class ServerProcess:
    """A running server. ``url`` is where it answers."""

    def __init__(self, arguments: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        """Start it and wait until it answers.

        Args:
            arguments: vLLM's engine arguments by their Python names.
            variables: environment variables laid over this process's, without those of a launcher.

        Raises:
            ConfigError: vLLM is not installed, or the server ended before it answered.
        """
        if importlib.util.find_spec("vllm") is None:
            from agentr1_train.sampler.vllm import INSTALL

            raise ConfigError(INSTALL)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._folder = tempfile.TemporaryDirectory(prefix="agentr1-vllm-")
        self._log = Path(self._folder.name) / "server.log"
        environment = {name: value for name, value in os.environ.items() if name not in _LAUNCHER_VARIABLES}
        # Not the command `vllm`: it looks for a distribution of that name, and the CPU build has another.
        command = [
            sys.executable,
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *command_line(arguments)],
                env=environment | dict(variables),
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_end_with_parent,
                start_new_session=True,  # one group with the processes it starts
            )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Raise RunFailedError if the server has ended, or does at once: its connections close a little earlier."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_END_S)
            raise RunFailedError(
                f"vLLM's server ended with exit code {code}; --resume starts another and continues from the last "
                f"checkpoint.\n{self.last_lines()}"
            )

    def close(self) -> None:
        """End the server, by force if it takes longer than a minute, and what it left behind if it was killed."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        _kill_group(self._process.pid)  # its engine outlives a server that was killed
        self._folder.cleanup()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_S
        while not answers(self.url):
            if self._process.poll() is not None:
                raise ConfigError(f"vLLM's server did not start.\n{self.last_lines()}")
            if time.monotonic() > deadline:
                raise ConfigError(f"vLLM's server did not answer within {START_S:.0f} s.\n{self.last_lines()}")
            time.sleep(0.2)

    def last_lines(self) -> str:
        """Return the end of what the server wrote."""
        return "\n".join(self._log.read_text("utf-8", errors="replace").splitlines()[-25:])


def _kill_group(group: int) -> None:
    """Kill the processes of a group, all but Python's resource tracker.

    It ends by itself when they are gone, and removes the queues that they leave in shared memory: 400 MB.
    """
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            process = int(place.name)
            if os.getpgid(process) == group and b"resource_tracker" not in (place / "cmdline").read_bytes():
                os.kill(process, signal.SIGKILL)


def answers(url: str) -> bool:
    """Whether a server says at ``url`` that it is ready."""
    with contextlib.suppress(OSError, urllib.error.URLError), _OPENER.open(f"{url}/health", timeout=10) as reply:
        return reply.status == 200
    return False


def command_line(arguments: Mapping[str, Any]) -> Sequence[str]:
    """Return engine arguments as the server's command line takes them.

    >>> command_line({"dtype": "float32", "enforce_eager": True, "async": False, "max_model_len": -1})
    ['--dtype', 'float32', '--enforce-eager', '--no-async', '--max-model-len', 'auto']
    """
    words: list[str] = []
    for name, value in arguments.items():
        words.append(f"--{'no-' if value is False else ''}{name.replace('_', '-')}")
        if not isinstance(value, bool):
            words.append("auto" if (name, value) == ("max_model_len", -1) else str(value))
    return words


def _end_with_parent() -> None:
    """Have the kernel end this process when the one that started it is gone, however it went (Linux)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
