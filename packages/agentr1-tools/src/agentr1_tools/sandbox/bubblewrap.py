"""The command line of a sandbox made by bubblewrap. A pure function of what it is given; nothing is started here."""

from dataclasses import dataclass

from agentr1_tools.sandbox.interpreter import Interpreter
from agentr1_tools.sandbox.limits import Limits

NOBODY = 65534
OLDEST = (0, 8)  # the first with --size and --disable-userns
_SHM_BYTES = 1024**2


@dataclass(frozen=True)
class Bubblewrap:
    """Namespaces of its own around a Python of the host.

    program: path of `bwrap`.
    interpreter: the Python inside.
    drop: path of `setpriv` when this process is root. Root's processes are not counted, whatever the namespace, and who
        is root outside is root over the files that are bound in, so bubblewrap itself must run as somebody else.
    """

    program: str
    interpreter: Interpreter
    drop: str | None = None
    kind: str = "bubblewrap"
    counts_its_own: bool = True

    @property
    def python(self) -> tuple[str, ...]:
        """How the interpreter is called inside."""
        return (self.interpreter.path,)

    def command(self, limits: Limits, seconds: float, name: str) -> list[str]:
        """All that stands before the interpreter."""
        return [
            *drop_root(self.drop),
            self.program,
            *("--unshare-user", "--disable-userns", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
            *("--unshare-cgroup-try", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
            *_binds(self.interpreter),
            *("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
            *("--size", str(min(_SHM_BYTES, limits.tmp_bytes)), "--perms", "1777", "--tmpfs", "/dev/shm"),
            *("--size", str(limits.tmp_bytes), "--perms", "1777", "--tmpfs", "/tmp"),
            *("--remount-ro", "/"),
            *("--hostname", "sandbox", "--setenv", "HOME", "/tmp", "--chdir", "/tmp"),
            "--",
        ]

    def stop(self, name: str) -> list[str]:
        """Nothing to do: all of it ends with the process that was started."""
        return []


def drop_root(setpriv: str | None) -> list[str]:
    """What makes the rest of a command line run as nobody."""
    return [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if setpriv else []


def _binds(interpreter: Interpreter) -> list[str]:
    """Read-only: the folders of the interpreter, and its program under every name it is called by."""
    folders = [part for folder in interpreter.folders for part in ("--ro-bind", folder, folder)]
    links = [part for target, place in interpreter.links for part in ("--symlink", target, place)]
    files = [part for name in interpreter.files for part in ("--ro-bind", interpreter.program, name)]
    return folders + links + files
