"""What both ALFWorld environments share: one game in play, with its settings, its expert and its state."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, cast

from agentr1_envs.agent_env import InfoValue
from agentr1_envs.alfworld.dialects import DIALECTS, OWN, dialect_of, translated
from agentr1_envs.alfworld.engines import ENGINES, Engine, NativeEngine, make_engine
from agentr1_envs.alfworld.games import GameTask, find_games, load_games
from agentr1_envs.alfworld.planner import find_plan
from agentr1_envs.alfworld.searching import ORDERS, Manner, played
from agentr1_envs.alfworld.session import NOTHING
from agentr1_envs.errors import SettingError, require_choice
from agentr1_envs.loader import OnBadRow
from agentr1_envs.tasks import Task, TaskSet

GOALS = ("template", "human")

GAME_INFO: Mapping[str, InfoValue] = {
    "admissible_commands": (),
    "task_type": "",
    "valid_action": True,
    "dialect": "",
}
"""What `info` has on top of the usual entries."""


@dataclass(frozen=True, slots=True)
class GameSettings:
    """How games are played."""

    engine: str = "native"
    """"native", or "textworld" (the original engine; needs ``agentr1-envs[alfworld]``)."""
    dialect: str = OWN
    """A further dialect that is accepted: "0.3" (`put X in/on Y`), "0.4" (`move X to Y`), or "own" for none."""
    goals: str = "template"
    """"template", or "human": what a person wrote for the goal, drawn by the seed."""
    expert_seconds: float = 0.0
    """How long the expert may search for a plan once the walkthrough no longer applies; 0 leaves the search off."""
    searching: float = 0.0
    """How patiently the demonstration looks for things, as one who is not told where they lie: the probability of each
    further look at a place. 0 goes straight to everything, 1 looks until it finds."""
    search_order: str = "random"
    """"random", or "listed": the demonstration goes through the furniture in the order in which the game names it, and
    plans anew, whatever `expert_seconds` says, where it comes upon another such thing than the walkthrough's."""
    slips: float = 0.0
    """Probability that the demonstration says something impossible before a command, and once more after that."""

    def __post_init__(self) -> None:
        """Raises SettingError for a value out of range."""
        require_choice("engine", self.engine, ENGINES)
        require_choice("dialect", self.dialect, (OWN, *DIALECTS))
        require_choice("goals", self.goals, GOALS)
        if not self.expert_seconds >= 0:
            raise SettingError(f"expert_seconds={self.expert_seconds!r} must be 0 or more.")
        if self.expert_seconds and self.engine != "native":
            raise SettingError("expert_seconds= plans in the native engine; it needs engine='native'.")
        require_choice("search_order", self.search_order, ORDERS)
        if not 0.0 <= self.searching <= 1.0:
            raise SettingError(f"searching={self.searching!r} must be a probability, 0 to 1.")
        if not 0.0 <= self.slips <= 0.9:
            raise SettingError(f"slips={self.slips!r} must be a probability, 0 to 0.9.")
        if self.errs and self.engine != "native":
            raise SettingError("searching= and slips= look ahead in the native engine; they need engine='native'.")

    @property
    def errs(self) -> bool:
        """Whether the demonstration is more than the walkthrough."""
        return bool(self.searching or self.slips)

    @property
    def manner(self) -> Manner:
        """How the demonstration plays."""
        return Manner(self.searching, self.slips, self.search_order)


SETTING_NAMES = tuple(item.name for item in fields(GameSettings))


@dataclass(slots=True)
class Playing:
    """A game being played."""

    settings: GameSettings
    goal: str = ""
    dialect: str = ""
    walkthrough: tuple[str, ...] = ()
    followed: int = 0
    """How many commands of the walkthrough have been played, in order."""
    luck: int = 0
    """Seed of this episode's looks and slips."""
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        """Make the engine."""
        self.engine = make_engine(self.settings.engine)

    def start(self, task: Task, draw: Callable[[int], int]) -> str:
        """Begin the game of a task; the text that opens it.

        Args:
            task: a `GameTask`.
            draw: gives a number below its argument.

        Raises:
            GameFileError: the game is broken; the message names it. SettingError: it has no human goal.
        """
        if not isinstance(task, GameTask):
            raise SettingError(f"task {task.task_id!r} is no ALFWorld game.")
        self.goal, self.luck = task.question, draw(1 << 31) if self.settings.errs else 0
        if self.settings.goals == "human":
            if not task.human_goals:
                raise SettingError(f"goals='human': game {task.task_id!r} has no goal written by people.")
            self.goal = task.human_goals[draw(len(task.human_goals))]
        return self._begin(task)

    def play(self, command: str) -> tuple[str, bool]:
        """The game's answer to a command, and whether the command was admissible."""
        said = translated(command.strip(), self.settings.dialect, self.dialect)
        valid = said in self.engine.admissible
        if not valid:
            return NOTHING, False
        if self.followed < len(self.walkthrough) and said == self.walkthrough[self.followed]:
            self.followed += 1
        return self.engine.step(said), True

    def expert(self) -> str:
        """The next command of the walkthrough while it applies, or of a plan; "" when there is neither."""
        if self.engine.won:
            return ""
        if self.followed < len(self.walkthrough) and self.walkthrough[self.followed] in self.engine.admissible:
            return self.walkthrough[self.followed]
        return next(iter(self.plan()), "")

    def plan(self) -> list[str]:
        """Commands that win from here; empty when planning is off, or none was found in time."""
        if not self.settings.expert_seconds:
            return []
        engine = cast("NativeEngine", self.engine)
        return find_plan(engine.session, self.settings.expert_seconds) or []

    def solution(self) -> list[str]:
        """Commands that win from here: the rest of the walkthrough, or a plan, played as the settings ask."""
        rest = list(self.walkthrough[self.followed :])
        way = rest if rest and rest[0] in self.engine.admissible else self.plan()
        if not self.settings.errs:
            return way
        return played(cast("NativeEngine", self.engine).session, way, self.settings.manner, Random(self.luck))

    def info(self, task: Task, valid: bool) -> dict[str, InfoValue]:
        """The entries of `GAME_INFO`."""
        return {
            "admissible_commands": tuple(self.engine.admissible),
            "task_type": task.kind,
            "valid_action": valid,
            "dialect": self.dialect,
        }

    def get_state(self) -> dict[str, Any]:
        """The state as JSON-ready data."""
        return {"goal": self.goal, "followed": self.followed, "luck": self.luck, "engine": self.engine.get_state()}

    def set_state(self, task: GameTask, state: dict[str, Any]) -> None:
        """Take up a state of a game."""
        self.goal = state["goal"]
        self._begin(task)
        self.followed, self.luck = state["followed"], state["luck"]
        self.engine.set_state(state["engine"])

    def _begin(self, task: GameTask) -> str:
        self.dialect = dialect_of(task.logic.grammar)
        self.walkthrough, self.followed = task.plan, 0
        return self.engine.start(task.file(self.goal))


class GameSource:
    """Loads the games when first called; a named place that is not there is told at once."""

    def __init__(
        self,
        split: str,
        data: str | os.PathLike[str] | None,
        task_types: tuple[str, ...],
        on_bad_row: OnBadRow,
    ) -> None:
        find_games(split, data)
        self._split, self._data, self._task_types = split, data, task_types
        self._on_bad_row: OnBadRow = on_bad_row

    def __call__(self) -> TaskSet:
        tasks = load_games(self._split, self._data, self._on_bad_row)
        if not self._task_types:
            return tasks
        return tasks.where(lambda task: task.kind in self._task_types, f"task_types={self._task_types} fits none")
