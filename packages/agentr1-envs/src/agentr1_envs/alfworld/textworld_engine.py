"""The original engine (alfworld 0.4.2 on textworld 1.7.0) behind our protocol: to compare with, and a way out.

Its packages are not installed with this one. It is slow, serves one thread at a time, and cannot be copied: a state is
the commands played so far, which are played again.
"""

import json
import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from agentr1_envs.alfworld.game import GameFile
from agentr1_envs.alfworld.grammar import GOAL
from agentr1_envs.errors import DependencyMissingError, GameFileError, SettingError
from agentr1_envs.once import ForkSafeLock

_LOCK = ForkSafeLock()
_FREE: list[Any] = []
"""Environments of the original that nobody plays in; each holds a copy of a 12 MB library, so they are used again."""
_OFFICIAL_VARIABLE = "ALFWORLD_DATA"


class TextWorldEngine:
    """The original engine, one game at a time."""

    def __init__(self) -> None:
        """Find the packages.

        Raises:
            DependencyMissingError: they are not installed.
        """
        self._env: Any = None
        self._state: Any = None
        self._file: GameFile | None = None
        self._played: list[str] = []
        with _LOCK, _guarded():
            _original()

    @property
    def admissible(self) -> tuple[str, ...]:
        """The admissible commands in alphabetical order."""
        return tuple(self._state["admissible_commands"])

    @property
    def won(self) -> bool:
        """Whether the goal holds."""
        return bool(self._state["won"])

    def start(self, file: GameFile) -> str:
        """Begin a game; the text that opens it.

        Raises:
            GameFileError: the original cannot play it; the message names the game.
        """
        self.load(file)
        return self.reset()

    def load(self, file: GameFile) -> None:
        """Have the original read a game; `reset` begins it.

        Raises:
            GameFileError: it cannot.
        """
        self._file = file
        game: dict[str, Any] = {
            "pddl_domain": file.domain,
            "grammar": file.grammar.replace(GOAL, json.dumps(file.goal)[1:-1]),
            "pddl_problem": file.problem,
            "walkthrough": [],
        }
        with _LOCK, _guarded():
            import_module("mementos.core")._memento_cache.clear()  # it would grow by 1 MB a game
            if self._env is None:
                self._env = _FREE.pop() if _FREE else _original()
            with _named(file):
                self._env.load(game)

    def reset(self) -> str:
        """Back to the beginning of the game; the text that opens it."""
        assert self._file is not None, "load() reads a game"
        self._played = []
        with _LOCK, _guarded(), _named(self._file):
            self._state = self._env.reset()
        return str(self._state["feedback"])

    def step(self, command: str) -> str:
        """Play a command; the game's answer."""
        with _LOCK:
            self._state, _, _ = self._env.step(command)
        self._played.append(command)
        return str(self._state["feedback"])

    def get_state(self) -> dict[str, Any]:
        """The commands played so far."""
        return {"played": list(self._played)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Play the commands of a state again, from the beginning.

        Raises:
            SettingError: it is no state of this engine.
        """
        if self._file is None or not isinstance(state.get("played"), list):
            raise SettingError(f"state={state!r:.80}: needs {{'played': [command, ...]}}, and a game that was begun.")
        commands: list[str] = [str(command) for command in state["played"]]
        self.reset()
        for command in commands:
            self.step(command)

    def close(self) -> None:
        """Leave the environment to others."""
        if self._env is not None:
            with _LOCK:
                _FREE.append(self._env)
            self._env = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "TextWorldEngine":
        twin = TextWorldEngine()
        if self._file is not None:
            twin.start(self._file)
            twin.set_state(self.get_state())
        return twin


def _original() -> Any:
    """A new environment of the original."""
    try:
        textworld = import_module("textworld")
        pddl = import_module("textworld.envs.pddl.pddl")
        alfworld = import_module("alfworld.agents.environment.alfred_tw_env")
    except ImportError as error:
        raise DependencyMissingError(
            f"engine='textworld' needs the packages of agentr1-envs[alfworld], which are not installed ({error}). "
            "engine='native' plays the same games to the byte and needs none of them."
        ) from error
    if pddl.fast_downward_missing:
        raise DependencyMissingError(
            "engine='textworld' needs fast-downward-textworld, a package of agentr1-envs[alfworld], which is not "
            "installed. engine='native' plays the same games to the byte and needs none of them."
        )
    wanted = textworld.EnvInfos(won=True, admissible_commands=True)
    return alfworld.AlfredDemangler(pddl.PddlEnv(wanted), shuffle=False)


@contextmanager
def _named(file: GameFile) -> Generator[None]:
    """Name the game in whatever the original raises; its translator ends the process where it cannot read."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise GameFileError(f"game {file.name}: the original engine cannot play it: {error!r}") from error


@contextmanager
def _guarded() -> Generator[None]:
    """Put back what the original changes: arguments, standard output, and a folder it makes when it is imported."""
    arguments, output, folder = sys.argv, sys.stdout, os.environ.get(_OFFICIAL_VARIABLE)
    os.environ[_OFFICIAL_VARIABLE] = tempfile.gettempdir()
    try:
        yield
    finally:
        sys.argv, sys.stdout = arguments, output
        os.environ.pop(_OFFICIAL_VARIABLE)
        if folder is not None:
            os.environ[_OFFICIAL_VARIABLE] = folder
