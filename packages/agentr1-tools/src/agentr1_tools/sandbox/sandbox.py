"""Finds the sandbox of this machine, and tries it once, so that a refusal comes before the first call.

Order: bubblewrap; docker or podman only when asked for by name; otherwise no sandbox, which is refused unless
`allow_unsafe_subprocess` was set.
"""

import contextlib
import os
import re
import shutil
import subprocess
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from agentr1_tools.errors import SandboxUnavailableError
from agentr1_tools.sandbox import bubblewrap, cgroup, guest, interpreter
from agentr1_tools.sandbox.bubblewrap import Bubblewrap
from agentr1_tools.sandbox.containers import IMAGE, Container
from agentr1_tools.sandbox.limits import Limits
from agentr1_tools.sandbox.run import Outcome, run
from agentr1_tools.sandbox.settings import SandboxSettings
from agentr1_tools.sandbox.unsafe import WARNING, UnsafeSandboxWarning, UnsafeSubprocess

INSTALL = "apt install bubblewrap"
_TRY_SECONDS = 60.0
_GUEST = Path(guest.__file__).read_text(encoding="utf-8")


class Launcher(Protocol):
    """Writes the command line of one run. `counts_its_own`: RLIMIT_NPROC counts the processes of that run alone."""

    @property
    def kind(self) -> str: ...

    @property
    def python(self) -> tuple[str, ...]: ...

    @property
    def counts_its_own(self) -> bool: ...

    def command(self, limits: Limits, seconds: float, name: str) -> list[str]: ...

    def stop(self, name: str) -> list[str]: ...


@dataclass(frozen=True)
class Sandbox:
    """A sandbox that was found to work. It holds nothing open and can be sent to another process."""

    launcher: Launcher
    limits: Limits
    groups: tuple[Path, ...] = ()

    @property
    def kind(self) -> str:
        """Which one it is: "bubblewrap", "docker", "podman", or "subprocess", which is none."""
        return self.launcher.kind

    def run(self, code: str, seconds: float) -> Outcome:
        """Run Python code, with the time limit on all of it. Raises OSError when nothing can be started."""
        name = f"agentr1-{uuid4().hex}"
        rlimits = self.limits.rlimits(seconds)
        if not self.launcher.counts_its_own:
            del rlimits["NPROC"]
        with cgroup.group(self.groups, self.limits) as join:
            outcome = run(
                [
                    *join,
                    *self.launcher.command(self.limits, seconds, name),
                    *(*self.launcher.python, "-I", "-B", "-X", "utf8", "-c", _GUEST),
                    *(f"{limit}={value}" for limit, value in rlimits.items()),
                ],
                stdin=code.encode("utf-8", "surrogatepass"),
                seconds=seconds,
                output_bytes=self.limits.output_bytes,
                environment=self._environment(),
            )
        if outcome.timed_out and (stop := self.launcher.stop(name)):
            with contextlib.suppress(OSError, subprocess.SubprocessError):  # then the container ends by itself, soon
                subprocess.run(stop, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRY_SECONDS)
        return outcome

    def tidy(self) -> None:
        """Remove what runs left behind that were killed from outside, with the process that had started them."""
        cgroup.sweep(self.groups)

    def _environment(self) -> Mapping[str, str]:
        """Empty; docker and podman, which are clients of something, need ours. It does not reach the container."""
        return os.environ if isinstance(self.launcher, Container) else {}


def find_sandbox(settings: SandboxSettings) -> Sandbox:
    """The sandbox these settings ask for, tried once. Raises SandboxUnavailableError: one line that says what to do.

    Warns with UnsafeSandboxWarning where it is a plain subprocess.
    """
    if settings.sandbox in ("docker", "podman"):
        return _container(settings)
    try:
        return _bubblewrap(settings)
    except SandboxUnavailableError as error:
        if not settings.allow_unsafe_subprocess:
            raise
        path = settings.interpreter or interpreter.default_path()
        sandbox = _tried(Sandbox(UnsafeSubprocess(path, _setpriv()), settings.limits), "")
        warnings.warn(f"{error}; so the code runs in a plain subprocess: {WARNING}", UnsafeSandboxWarning, stacklevel=3)
        return sandbox


def _bubblewrap(settings: SandboxSettings) -> Sandbox:
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxUnavailableError(
            f"there is no sandbox: bubblewrap (the command bwrap) is not installed; install it with `{INSTALL}`, or "
            "give sandbox='docker' or 'podman'"
        )
    version = _version(program)
    if version < bubblewrap.OLDEST:
        raise SandboxUnavailableError(
            f"bubblewrap {'.'.join(map(str, version))} is too old, 0.8 is the oldest that will do; install a later one "
            "(Debian 12, Ubuntu 24.04), or give sandbox='docker' or 'podman'"
        )
    launcher = Bubblewrap(program, interpreter.find(settings.interpreter), _setpriv())
    hint = (
        "user namespaces may be forbidden here (sysctl kernel.unprivileged_userns_clone, AppArmor, or a container's "
        "own seccomp filter); see docs/guides/sandbox.md"
    )
    if launcher.drop:
        hint += f"; as root, uid {bubblewrap.NOBODY} must be able to run {launcher.interpreter.program}"
    groups = cgroup.find(settings.limits)
    return _tried(Sandbox(launcher, settings.limits, groups), hint)


def _container(settings: SandboxSettings) -> Sandbox:
    kind = str(settings.sandbox)
    program = shutil.which(kind)
    if program is None:
        raise SandboxUnavailableError(f"sandbox={kind!r}, but there is no command {kind}; install it, or {INSTALL}")
    image = settings.image or IMAGE
    hint = f"is it running, and `{kind} pull {image}` done?"
    return _tried(Sandbox(Container(kind, program, image), settings.limits), hint)


def _tried(sandbox: Sandbox, hint: str) -> Sandbox:
    """The sandbox, when an empty program runs in it."""
    try:
        outcome = sandbox.run("", _TRY_SECONDS)
        problem = "" if outcome.started and outcome.exit_code == 0 else outcome.stderr or f"it ended as {outcome}"
    except OSError as error:
        problem = str(error)
    if not problem:
        return sandbox
    if sandbox.groups:
        return _tried(Sandbox(sandbox.launcher, sandbox.limits), hint)
    said = " ".join(problem.split())[-500:]
    raise SandboxUnavailableError(f"{sandbox.kind} is here but does not work: {said}{hint and f' ({hint})'}")


def _version(program: str) -> tuple[int, ...]:
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, env={}).stdout
    except (OSError, subprocess.SubprocessError):
        told = ""
    numbers = re.search(r"(\d+)\.(\d+)", told)
    return tuple(int(number) for number in numbers.groups()) if numbers else (0, 0)


def _setpriv() -> str | None:
    """The command that drops root; None where there is nothing to drop. Raises SandboxUnavailableError."""
    if os.geteuid() != 0:
        return None
    program = shutil.which("setpriv")
    if program is None:
        raise SandboxUnavailableError(
            "as root a sandbox needs the command setpriv, to run as nobody; install it with `apt install util-linux`"
        )
    return program
