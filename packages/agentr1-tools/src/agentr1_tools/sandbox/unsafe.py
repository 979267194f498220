"""A plain subprocess, for machines without a sandbox. It keeps the limits and the time; it is no security boundary."""

from dataclasses import dataclass

from agentr1_tools.sandbox.bubblewrap import drop_root
from agentr1_tools.sandbox.limits import Limits

WARNING = "this is no security boundary: the code can read and write what this user can, and use the network"


class UnsafeSandboxWarning(RuntimeWarning):
    """Code that nobody has read runs without a sandbox."""


@dataclass(frozen=True)
class UnsafeSubprocess:
    """`allow_unsafe_subprocess=True` and nothing better.

    interpreter: path of the Python.
    drop: path of `setpriv` when this process is root.
    """

    interpreter: str
    drop: str | None = None
    kind: str = "subprocess"

    @property
    def python(self) -> tuple[str, ...]:
        """How the interpreter is called."""
        return (self.interpreter,)

    @property
    def counts_its_own(self) -> bool:
        """A limit on this user's own processes would count what else the user runs."""
        return self.drop is not None

    def command(self, limits: Limits, seconds: float, name: str) -> list[str]:
        """All that stands before the interpreter."""
        return drop_root(self.drop)

    def stop(self, name: str) -> list[str]:
        """Nothing to do: the process is killed with its group."""
        return []
