"""The two engines behind one protocol: `native`, and the original one (`textworld`)."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, cast

from agentr1_envs.alfworld.game import Game, GameFile, load_game
from agentr1_envs.alfworld.session import Session
from agentr1_envs.errors import require_choice
from agentr1_envs.once import OncePerProcess

ENGINES = ("native", "textworld")


class Engine(Protocol):
    """Plays one game at a time."""

    @property
    def admissible(self) -> tuple[str, ...]:
        """The admissible commands in alphabetical order."""
        ...

    @property
    def won(self) -> bool:
        """Whether the goal holds."""
        ...

    def start(self, file: GameFile) -> str:
        """Begin a game; the text that opens it."""
        ...

    def step(self, command: str) -> str:
        """Play a command; the game's answer."""
        ...

    def get_state(self) -> dict[str, Any]:
        """The state as JSON-ready data."""
        ...

    def set_state(self, state: dict[str, Any]) -> None:
        """Take up a state of the game that was begun."""
        ...

    def close(self) -> None:
        """Let go of what the engine holds."""
        ...


class NativeEngine:
    """This package's engine; games are parsed once and shared while they are played again and again."""

    def __init__(self) -> None:
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """The game being played."""
        assert self._session is not None, "start() begins a game"
        return self._session

    @property
    def admissible(self) -> tuple[str, ...]:
        """The admissible commands in alphabetical order."""
        return self.session.admissible

    @property
    def won(self) -> bool:
        """Whether the goal holds."""
        return self.session.won

    def start(self, file: GameFile) -> str:
        """Begin a game; the text that opens it."""
        self._session = Session(_GAMES.get(file, lambda: load_game(file)))
        return self._session.intro()

    def step(self, command: str) -> str:
        """Play a command; the game's answer."""
        return self.session.step(command)

    def get_state(self) -> dict[str, Any]:
        """The state as JSON-ready data."""
        return self.session.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Take up a state of the game that was begun."""
        self.session.set_state(state)

    def close(self) -> None:
        """Forget the game."""
        self._session = None


_GAMES = OncePerProcess[Game](kept=16)


def make_engine(name: str) -> Engine:
    """The engine of this name.

    Raises:
        SettingError: there is none. DependencyMissingError: its packages are not installed.
    """
    require_choice("engine", name, ENGINES)
    if name == "native":
        return NativeEngine()
    module = import_module("agentr1_envs.alfworld.textworld_engine")
    return cast("Callable[[], Engine]", module.TextWorldEngine)()
