"""The command line of a sandbox made by docker or podman. Pure functions; nothing is started here."""

import math
from dataclasses import dataclass

from agentr1_tools.sandbox.bubblewrap import NOBODY
from agentr1_tools.sandbox.limits import Limits

IMAGE = "python:3.11-slim"


@dataclass(frozen=True)
class Container:
    """A container for each run, from an image that holds a Python.

    kind: "docker" or "podman".
    program: path of that command.
    image: an image that is already here; nothing is pulled. It must hold `python3` and `timeout`.
    """

    kind: str
    program: str
    image: str = IMAGE
    python: tuple[str, ...] = ("python3",)
    counts_its_own: bool = False  # --pids-limit does; RLIMIT_NPROC would count nobody's processes on the whole host

    def command(self, limits: Limits, seconds: float, name: str) -> list[str]:
        """All that stands before the interpreter. `timeout` is the container's first process, which nothing in it can
        kill: the container ends even when whoever started it is gone."""
        memory = str(limits.total_bytes)
        return [
            *(self.program, "run", "--rm", "--interactive", "--name", name, "--pull", "never", "--log-driver", "none"),
            *("--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--ipc", "private", "--shm-size", "1m", "--user", f"{NOBODY}:{NOBODY}", "--hostname", "sandbox"),
            *("--tmpfs", f"/tmp:rw,nosuid,nodev,mode=1777,size={limits.tmp_bytes}", "--workdir", "/tmp"),
            *("--memory", memory, "--memory-swap", memory, "--pids-limit", str(limits.processes + 2)),
            *("--env", "HOME=/tmp", "--entrypoint", "timeout"),
            *(self.image, "-s", "KILL", str(math.ceil(seconds) + 5)),
        ]

    def stop(self, name: str) -> list[str]:
        """Ends the container, which does not end with the command that started it."""
        return [self.program, "rm", "--force", name]
