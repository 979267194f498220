"""Limits: what one run in a sandbox may use."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from agentr1_tools.errors import ToolConfigError, did_you_mean


@dataclass(frozen=True)
class Limits:
    """Every limit holds for one run; beyond it the program gets an error from the system, or is killed.

    cpu_seconds: processor time of each process; None means as much as the call may take.
    memory_bytes: address space of each process, and, where a control group can be had, of all together.
    processes: processes and threads at the same time.
    file_bytes: the largest file a process may write.
    tmp_bytes: what fits into the private /tmp.
    open_files: descriptors of each process.
    output_bytes: what is kept of stdout, and of stderr; the middle of a longer output is cut, and the cut marked.
    """

    cpu_seconds: int | None = None
    memory_bytes: int = 1024**3
    processes: int = 32
    file_bytes: int = 16 * 1024**2
    tmp_bytes: int = 64 * 1024**2
    open_files: int = 64
    output_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        for entry in fields(self):
            value: object = getattr(self, entry.name)
            optional = entry.name == "cpu_seconds" and value is None
            if not optional and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ToolConfigError(f"limits: {entry.name} is {value!r}; it must be a whole number, 1 or more")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """From what a configuration file holds. Raises ToolConfigError for a name it does not know."""
        known = [entry.name for entry in fields(cls)]
        for name in values:
            if name not in known:
                raise ToolConfigError(f"limits: no {name!r}{did_you_mean(name, known)}; legal are {', '.join(known)}")
        return cls(**values)

    @property
    def total_bytes(self) -> int:
        """Memory of all processes of a run and of its /tmp."""
        return self.memory_bytes + self.tmp_bytes

    def cpu_limit(self, seconds: float) -> int:
        """Processor time, in whole seconds, of a process of a call that may take `seconds`."""
        return self.cpu_seconds or math.ceil(seconds)

    def rlimits(self, seconds: float) -> dict[str, int]:
        """What the program inside sets for itself before anything else, by the names of `resource.RLIMIT_*`."""
        return {
            "AS": self.memory_bytes,
            "CORE": 0,
            "CPU": self.cpu_limit(seconds),
            "FSIZE": self.file_bytes,
            "NOFILE": self.open_files,
            "NPROC": self.processes,
        }
