"""What a server of environments takes on."""

from dataclasses import dataclass, fields

from agentr1_envs.errors import SettingError


@dataclass(frozen=True)
class ServingLimits:
    """Limits of a server; all of them above 0."""

    max_sessions: int = 256
    """Sessions at the same time, each with an environment of its own; one more is refused."""
    max_message_bytes: int = 4 * 1024 * 1024
    """Longer messages of a client are refused."""
    idle_seconds: float = 900.0
    """A session nobody asked anything for so long ends, and its environment is closed."""
    step_seconds: float = 300.0
    """A call of an environment that takes longer ends its session."""

    def __post_init__(self) -> None:
        """Raises SettingError for a limit that would let nothing through."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise SettingError(f"{field.name}={value} must be above 0.")
