"""Every error this package raises, one class a kind of failure.

Each class also inherits a standard class, so callers may catch either. A message says what was given, what is
legal and what to do. What a *model* does wrong inside an episode is never an error: it becomes feedback.
"""

import difflib
from collections.abc import Iterable
from pathlib import Path


class EnvsError(Exception):
    """Base of every error of agentr1-envs."""


class SettingError(EnvsError, ValueError):
    """An argument of an environment or command is unknown, out of range or would have no effect."""


class UnknownTaskError(EnvsError, KeyError):
    """A task id that the loaded split does not hold."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class DataNotFoundError(EnvsError, FileNotFoundError):
    """A data file, folder or corpus that is not where it was looked for."""


class DataMismatchError(EnvsError, ValueError):
    """A file with the name of a published one that has another size or checksum."""


class DataRowError(EnvsError, ValueError):
    """One row of a data file that cannot be read; names the file, the line (1-based) and the field."""

    def __init__(self, path: Path | str, line: int, field: str, problem: str) -> None:
        super().__init__(f"{path}, line {line}, field {field!r}: {problem}")
        self.path, self.line, self.field, self.problem = str(path), line, field, problem

    def __reduce__(self) -> tuple[type, tuple[str, int, str, str]]:
        return type(self), (self.path, self.line, self.field, self.problem)


class GameFileError(EnvsError, ValueError):
    """A game that cannot be read or played; the environment's message names the game and its file."""


class DependencyMissingError(EnvsError, ImportError):
    """An optional dependency is needed for what was asked and is not installed."""


class DownloadError(EnvsError, ConnectionError):
    """The official files could not be fetched."""


class SharedMemoryError(EnvsError, TypeError, ValueError):
    """Text has no fixed size, so it cannot live in the shared memory of an AsyncVectorEnv."""


class InfoSchemaError(EnvsError, TypeError):
    """An environment returned an info entry that its declared schema does not hold (a bug of the environment)."""


class WireError(EnvsError, TypeError, ValueError):
    """A value, a space or a message that cannot travel between an environment server and its client."""


class RemoteError(EnvsError, ConnectionError):
    """An environment server cannot be reached, refuses what was asked, or is none."""


class SessionLostError(RemoteError):
    """The session with an environment server is gone, and the episode with it."""


class ReplayError(SessionLostError):
    """A lost episode, played again in a new session, took another course."""


class EnvTimeoutError(EnvsError, TimeoutError):
    """A call of a served environment took longer than its server allows; its session is over."""


def did_you_mean(name: str, legal: Iterable[str]) -> str:
    """``" Did you mean 'x'?"`` for the nearest legal name, or an empty string when none is near."""
    near = difflib.get_close_matches(name, list(legal), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def refuse_unknown(where: str, given: Iterable[str], legal: Iterable[str]) -> None:
    """Raise :class:`SettingError` for the first name that is not legal, with the nearest one that is."""
    names = tuple(legal)
    for name in given:
        if name not in names:
            raise SettingError(
                f"{where}: there is no setting {name!r}; legal: {', '.join(names)}.{did_you_mean(name, names)}"
            )


def require_choice(what: str, given: str, legal: Iterable[str]) -> str:
    """Return `given` when it is one of `legal`; raise :class:`SettingError` with the nearest name otherwise."""
    names = tuple(legal)
    if given not in names:
        raise SettingError(
            f"{what}={given!r} is not known; legal: {', '.join(map(repr, names))}.{did_you_mean(str(given), names)}"
        )
    return given
