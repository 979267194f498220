"""`agentr1/ALFWorld-v0`: household text games; one response is one command."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agentr1_envs.agent_env import InfoValue, ObservationKind, Turn
from agentr1_envs.alfworld.game_env import GameEnv
from agentr1_envs.alfworld.games import TASK_TYPES
from agentr1_envs.alfworld.playing import GAME_INFO, SETTING_NAMES, GameSettings, GameSource, Playing
from agentr1_envs.errors import refuse_unknown, require_choice
from agentr1_envs.loader import OnBadRow
from agentr1_envs.prompts import check_style, choose_system
from agentr1_envs.tasks import Task

MAX_STEPS = 50

_FULL = """You act in a household to reach a goal. Each response is one command and nothing else. The commands are:
go to (receptacle), open (receptacle), close (receptacle), take (object) from (receptacle), {put},
examine (something), use (object), heat (object) with (receptacle), clean (object) with (receptacle),
cool (object) with (receptacle), slice (object) with (object), look, inventory, help.
Things are named by kind and number, as in: go to cabinet 2. You have at most {max_steps} responses."""
_SHORT = "Act in the household: one command a response, such as: go to cabinet 2"


def alfworld(
    *,
    split: str = "train",
    data: str | os.PathLike[str] | None = None,
    task_types: str | Sequence[str] = (),
    on_bad_row: OnBadRow = "refuse",
    **settings: Any,
) -> "ALFWorldEnv":
    """Household tasks in text: find things, clean, heat or cool them, and put them where they belong.

    ## Description
    The games of ALFWorld, played by this package's own engine, whose text is the original's to the byte. Without data
    of your own the games are bundled ones, written by this project. Official games are read as they are: the folder
    ALFWORLD_DATA names, or packed files.

    ## Action Space
    `Text`: one command, such as ``take mug 1 from desk 1``. It must be among ``info["admissible_commands"]`` to the
    letter, blanks around it aside; any other is answered with "Nothing happens.", changes nothing and counts as a step.

    ## Observation Space
    `Text`: what the game says; `Messages` with ``observation="messages"``.

    ## Rewards
    1.0 when the goal is reached, in ``reward/task``. `info` also has `admissible_commands`, `task_type`,
    `valid_action` and `dialect` ("0.4" where things are put down with `move X to Y`, "0.3" with `put X in/on Y`).

    ## Starting State
    A game of the split, drawn by the seed or named by ``options={"task_id": ...}``.

    ## Episode End
    Terminated by reaching the goal (`end_reason` "won"); truncated after `max_steps`.

    ## Arguments
    * `split`: "train", "valid_seen", "valid_unseen" or "valid_train" (not in the bundled games).
    * `data`: a packed file, a folder, or "bundled"; None looks in AGENTR1_DATA, then the user's data folder, then
      ALFWORLD_DATA, then takes the bundled games.
    * `task_types`: only games of this type, or of these.
    * `on_bad_row`: "refuse" or "skip" games that are broken or marked as unsolvable.
    * `engine`, `dialect`, `goals`, `expert_seconds`: fields of `GameSettings`.
    * `max_steps`: by default 50. `system`: "full", "short", "none", or a text.
    * `observation`, `history`, `render_mode`: as for `AgentEnv`.

    ## Version History
    v0: first version.
    """
    own = ("max_steps", "system", "observation", "history", "render_mode")
    refuse_unknown("agentr1/ALFWorld-v0", settings, (*SETTING_NAMES, *own))
    game = GameSettings(**{name: value for name, value in settings.items() if name in SETTING_NAMES})
    rest = {name: value for name, value in settings.items() if name in own}
    return ALFWorldEnv(GameSource(split, data, read_task_types(task_types), on_bad_row), game, **rest)


def read_task_types(task_types: str | Sequence[str]) -> tuple[str, ...]:
    """One task type or several, checked.

    Raises:
        SettingError: one is not known.
    """
    chosen = (task_types,) if isinstance(task_types, str) else tuple(task_types)
    for task_type in chosen:
        require_choice("task_types", task_type, TASK_TYPES)
    return chosen


class ALFWorldEnv(GameEnv):
    """Household games; see `alfworld`."""

    extra_info: ClassVar[Mapping[str, InfoValue]] = GAME_INFO

    def __init__(
        self,
        tasks: GameSource,
        game: GameSettings,
        *,
        max_steps: int = MAX_STEPS,
        system: str = "full",
        observation: ObservationKind = "text",
        history: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(tasks, max_steps=max_steps, observation=observation, history=history, render_mode=render_mode)
        self._system = check_style(system)
        self.playing = Playing(game)

    @property
    def system_prompt(self) -> str:
        """Text for the system role."""
        old = self.playing.settings.dialect == "0.3"
        put = "put (object) in/on (receptacle)" if old else "move (object) to (receptacle)"
        return choose_system(self._system, _FULL.format(put=put, max_steps=self.max_steps), _SHORT)

    def demonstration(self) -> list[str]:
        """The commands that win from here."""
        return self.playing.solution()

    def begin(self, task: Task) -> str:
        """Begin the game."""
        opening = self.playing.start(task, lambda count: int(self.np_random.integers(count)))
        self._info.update(self.playing.info(task, True))
        return opening

    def advance(self, action: str) -> Turn:
        """Play one command."""
        feedback, valid = self.playing.play(action)
        won = self.playing.engine.won
        return Turn(feedback, {"task": float(won)}, "won" if won else "", won, self.playing.info(self.task, valid))
