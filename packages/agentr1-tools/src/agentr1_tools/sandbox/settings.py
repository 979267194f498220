"""SandboxSettings: what an operator chooses. Nothing is looked for or started here."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from agentr1_tools.errors import ToolConfigError, did_you_mean
from agentr1_tools.sandbox.limits import Limits

SandboxKind = Literal["bubblewrap", "docker", "podman"]
KINDS: tuple[str, ...] = get_args(SandboxKind)


@dataclass(frozen=True)
class SandboxSettings:
    """How risky code is run.

    sandbox: "bubblewrap", "docker" or "podman"; None is bubblewrap.
    interpreter: the Python inside bubblewrap; None is the system's.
    image: the image for docker and podman; None is `containers.IMAGE`.
    limits: what one run may use.
    allow_unsafe_subprocess: without bubblewrap run a plain subprocess, which is no security boundary, with a warning.
    """

    sandbox: SandboxKind | None = None
    interpreter: str | None = None
    image: str | None = None
    limits: Limits = field(default_factory=Limits)
    allow_unsafe_subprocess: bool = False

    def __post_init__(self) -> None:
        container = self.sandbox in ("docker", "podman")
        if self.sandbox is not None and self.sandbox not in KINDS:
            hint = did_you_mean(self.sandbox, KINDS)
            raise ToolConfigError(f"sandbox is {self.sandbox!r}{hint}; legal are {', '.join(KINDS)}")
        if self.image is not None and not container:
            raise ToolConfigError("image= is for sandbox='docker' and 'podman'; bubblewrap takes interpreter=")
        if self.interpreter is not None and container:
            raise ToolConfigError(f"interpreter= is for bubblewrap; sandbox={self.sandbox!r} takes image=")
        if self.sandbox is not None and self.allow_unsafe_subprocess:
            raise ToolConfigError(
                f"give sandbox={self.sandbox!r} or allow_unsafe_subprocess=True, not both: one asks for a sandbox, the "
                "other does without"
            )
