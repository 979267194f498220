"""`agentr1/ALFWorld-v0`: household text games; one response is one command."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agentr1_envs.agent_env import InfoValue, ObservationKind, Turn
from agentr1_envs.alfworld.game_env import GameEnv
from agentr1_envs.alfworld.games import TASK_TYPES
from agentr1_envs.alfworld.playing import GAME_INFO, SETTING_NAMES, GameSettings, GameSource, Playing
from agentr1_envs.errors import SettingError, refuse_unknown, require_choice
from agentr1_envs.loader import OnBadRow
from agentr1_envs.prompts import check_style, choose_system
from agentr1_envs.signatures import EPISODE, takes
from agentr1_envs.tasks import Task

MAX_STEPS = 50

_FULL = """You act in a household to reach a goal. Each response is one command and nothing else. The commands are:
go to (receptacle), open (receptacle), close (receptacle), take (object) from (receptacle), {put},
examine (something), use (object), heat (object) with (receptacle), clean (object) with (receptacle),
cool (object) with (receptacle), slice (object) with (object), look, inventory, help.
Things are named by kind and number, as in: go to cabinet 2. You have at most {max_steps} responses."""
_SHORT = "Act in the household: one command a response, such as: go to cabinet 2"


@takes(GameSettings, invalid_penalty=0.0, max_steps=MAX_STEPS, system="full", **EPISODE)
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
    The games of ALFWorld, played by this package's own engine, whose text is the original's to the byte. A game is a
    room with furniture and things, and a goal of one of six types: put something somewhere, look at it by a lamp, or
    clean, heat or cool it first, or bring two of it. Where things lie is not told: the agent has to look.

    Without data of your own the games are 35 bundled ones, written by this project; ``agentr1-envs generate alfworld``
    makes as many more as you like. The official games are read as they are: the folder ALFWORLD_DATA names, or packed
    files. For language models that call tools there is `agentr1/ALFWorldTools-v0`.

    ## Action Space
    `Text`: one command, such as ``take mug 1 from desk 1``. It must be among ``info["admissible_commands"]`` to the
    letter, blanks around it aside; any other is answered with "Nothing happens.", changes nothing and counts as a step.

    ## Observation Space
    `Text`: what the game says: at first the room and the goal, then what came of the command. With
    ``observation="messages"`` `Messages`: the whole conversation, of which the last `history` steps are kept.

    ## Rewards
    1.0 in the step that reaches the goal, in ``reward/task``; 0.0 in every other. In ``reward/format``, what a command
    costs that is not possible: `invalid_penalty`.

    ## Starting State
    A game of the split at its beginning, drawn by the seed or named by ``options={"task_id": ...}``. The same seed
    gives the same game and the same text.

    ## Episode End
    Terminated by reaching the goal (`end_reason` "won"); truncated after `max_steps` ("max_steps").

    ## Info
    * `success` (bool): whether the goal has been reached.
    * `task_id` (str): the game. `task_type` (str): which of the six types its goal is of.
    * `end_reason` (str): why the episode is over; empty while it goes on.
    * `steps` (int): responses so far.
    * `reward/task`, `reward/format` (float): the parts of this step's reward.
    * `admissible_commands` (tuple of str): the commands that are possible now, in alphabetical order.
    * `valid_action` (bool): whether the last command was one of them; true after a reset.
    * `dialect` (str): "0.4" where things are put down with `move X to Y`, "0.3" with `put X in/on Y`.

    ## Arguments
    * `split`: "train", "valid_seen", "valid_unseen" or "valid_train" (not in the bundled games).
    * `data`: a packed file, a folder, or "bundled"; None looks in AGENTR1_DATA, then the user's data folder, then
      ALFWORLD_DATA, then takes the bundled games.
    * `task_types`: only games of this type, or of these: "pick_and_place_simple", "look_at_obj_in_light",
      "pick_clean_then_place_in_recep", "pick_heat_then_place_in_recep", "pick_cool_then_place_in_recep",
      "pick_two_obj_and_place". Empty for all.
    * `on_bad_row`: "refuse" or "skip" games that are broken or marked as unsolvable.
    * `engine`, `dialect`, `goals`, `expert_seconds`: how games are played; fields of `GameSettings`.
    * `searching`, `slips`: probabilities that make the demonstration that of a player who looks for things and errs, 0
      to 1 and 0 to 0.9.
    * `search_order`: where it looks: "random", or "listed", in the order in which the game names its furniture.
    * `invalid_penalty`: what a command costs that is not possible, 0 or more.
    * `max_steps`: responses after which an unfinished episode is truncated.
    * `system`: the system text: "full", "short", "none", or a text of your own.
    * `observation`: "text" (what is new) or "messages" (the whole conversation).
    * `history`: with "messages", how many past steps stay in the conversation; None keeps all.
    * `render_mode`: None, or "ansi": `render` returns the transcript.

    ## Example
    ```python
    import gymnasium

    env = gymnasium.make("agentr1_envs:agentr1/ALFWorld-v0", data="bundled")
    observation, info = env.reset(seed=0)
    print(observation)
    for command in env.get_wrapper_attr("demonstration")():  # what the expert would do
        assert command in info["admissible_commands"]
        observation, reward, terminated, truncated, info = env.step(command)
    assert terminated and reward == 1.0 and info["end_reason"] == "won"
    ```

    ## References
    Shridhar, Yuan, Côté, Bisk, Trischler and Hausknecht: ALFWorld: Aligning Text and Embodied Environments for
    Interactive Learning. ICLR 2021. [arXiv:2010.03768](https://arxiv.org/abs/2010.03768)

    ## Version History
    v0: first version.
    """
    own = ("invalid_penalty", "max_steps", "system", "observation", "history", "render_mode")
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
    reward_parts = ("task", "format")

    def __init__(
        self,
        tasks: GameSource,
        game: GameSettings,
        *,
        invalid_penalty: float = 0.0,
        max_steps: int = MAX_STEPS,
        system: str = "full",
        observation: ObservationKind = "text",
        history: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(tasks, max_steps=max_steps, observation=observation, history=history, render_mode=render_mode)
        if not 0.0 <= invalid_penalty < math.inf:
            raise SettingError(f"invalid_penalty={invalid_penalty!r} must be 0 or more.")
        self._invalid_penalty, self._system = invalid_penalty, check_style(system)
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
        parts = {"task": float(won), "format": 0.0 if valid else -self._invalid_penalty}
        return Turn(feedback, parts, "won" if won else "", won, self.playing.info(self.task, valid))
