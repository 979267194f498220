"""`agentr1/ALFWorldTools-v0`: the household games through one tool call a response, with a state that is rebuilt."""

import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from agentr1_envs.agent_env import InfoValue, Turn
from agentr1_envs.alfworld.env import MAX_STEPS, read_task_types
from agentr1_envs.alfworld.game_env import GameEnv
from agentr1_envs.alfworld.playing import GAME_INFO, SETTING_NAMES, GameSettings, GameSource, Playing
from agentr1_envs.call_counts import CALL_INFO
from agentr1_envs.errors import SettingError
from agentr1_envs.loader import OnBadRow
from agentr1_envs.signatures import takes
from agentr1_envs.spaces import Message
from agentr1_envs.tasks import Task
from agentr1_envs.tool_env import EnvTool, ToolCall, ToolEnv
from agentr1_envs.tool_settings import ToolSettings

TOOL = "env_step"


@takes(GameSettings, ToolSettings, without=("max_calls_per_step",), max_steps=MAX_STEPS, render_mode=None)
def alfworld_tools(
    *,
    split: str = "train",
    data: str | os.PathLike[str] | None = None,
    task_types: str | Sequence[str] = (),
    on_bad_row: OnBadRow = "refuse",
    last_actions: int = 5,
    **settings: Any,
) -> "ALFWorldToolsEnv":
    """Household tasks through one tool, with the whole state in each prompt.

    ## Description
    The games of `agentr1/ALFWorld-v0` for language models that call tools. A response calls ``env_step`` with one
    command. What the model sees is written anew at each step, so that prompts do not grow: the task, what the game said
    last, the last actions, and the admissible commands without `help`.

    ## Action Space
    `Text`: the model's whole response, with one call of ``env_step(command)`` written in `format`. The command must be
    admissible to the letter, as in `agentr1/ALFWorld-v0`.

    ## Observation Space
    `Messages`: the system text, and one message with the state. A conversation is not kept.

    ## Rewards
    1.0 in the step that reaches the goal, in ``reward/task``. ``reward/env`` is what a call pays by `process_reward`,
    ``reward/format`` what an invalid step costs by `invalid_penalty`; both are 0 unless they are set. The step's reward
    is the sum.

    ## Starting State
    A game of the split at its beginning, drawn by the seed or named by ``options={"task_id": ...}``.

    ## Episode End
    Terminated by reaching the goal (`end_reason` "won"), or by `max_invalid` responses in a row with invalid calls
    only ("max_invalid"); truncated after `max_steps` ("max_steps"). A response that calls nothing changes nothing and
    counts as a step.

    ## Info
    * `success` (bool): whether the goal has been reached.
    * `task_id` (str): the game. `task_type` (str): which of the six types its goal is of.
    * `end_reason` (str): why the episode is over; empty while it goes on.
    * `steps` (int): responses so far.
    * `reward/task`, `reward/env`, `reward/format` (float): the parts of this step's reward.
    * `admissible_commands` (tuple of str): the commands that are possible now, in alphabetical order.
    * `valid_action` (bool): whether the last response played one of them; true after a reset.
    * `dialect` (str): "0.4" where things are put down with `move X to Y`, "0.3" with `put X in/on Y`.
    * `tool_calls`, `tool_errors` (int): calls so far, and how many of them failed.
    * `injected_errors` (int): how many failed on purpose; always 0 here, where the environment answers its tool itself.
    * `invalid_calls`, `invalid_steps` (int): calls that were written wrongly, and steps that had no other call.
    * `error_codes` (tuple of str): what went wrong in the last response.
    * `hops_found` (int), `prediction` (str): as in every environment with tools; 0 and empty here.

    ## Arguments
    * `split`, `data`, `task_types`, `on_bad_row`: which games, as for `agentr1/ALFWorld-v0`.
    * `last_actions`: how many past actions the state shows.
    * `engine`, `dialect`, `goals`, `expert_seconds`: how games are played; fields of `GameSettings`.
    * `searching`, `slips`: probabilities that make the demonstration that of a player who looks for things and errs, 0
      to 1 and 0 to 0.9.
    * `search_order`: where it looks: "random", or "listed", in the order in which the game names its furniture.
    * `render_mode`: None, or "ansi": `render` returns the transcript.
    * `format`, `system`, `tools_in_template`, `max_steps`, `tool_timeout`, `tool_seconds_per_episode`, `max_invalid`,
      `max_result_chars`, `process_reward`, `process_reward_range`, `progressive`, `per_hop`, `format_reward`,
      `invalid_penalty`, `inject_errors`: fields of `ToolSettings`. The game has no hops and no final answer, so
      `progressive`, `per_hop` and `format_reward` pay nothing here. One call a response is run.

    ## Example
    ```python
    import gymnasium

    env = gymnasium.make("agentr1_envs:agentr1/ALFWorldTools-v0", data="bundled")
    messages, info = env.reset(seed=0)
    print(messages[-1]["content"])
    call = '<tool_call>{"name": "env_step", "arguments": {"command": "look"}}</tool_call>'
    messages, reward, terminated, truncated, info = env.step(call)
    assert "Last actions: look" in messages[-1]["content"] and info["valid_action"]
    ```

    ## References
    Shridhar, Yuan, Côté, Bisk, Trischler and Hausknecht: ALFWorld: Aligning Text and Embodied Environments for
    Interactive Learning. ICLR 2021. [arXiv:2010.03768](https://arxiv.org/abs/2010.03768)

    ## Version History
    v0: first version.
    """
    if last_actions < 0:
        raise SettingError(f"last_actions={last_actions} must be at least 0.")
    game = GameSettings(**{name: value for name, value in settings.items() if name in SETTING_NAMES})
    rest = {name: value for name, value in settings.items() if name not in SETTING_NAMES}
    for name in ("observation", "history", "max_calls_per_step"):
        if name in rest:
            raise SettingError(f"{name}= is fixed here: one call a response, and a state rebuilt at each step.")
    return ALFWorldToolsEnv(
        GameSource(split, data, read_task_types(task_types), on_bad_row), game, last_actions, **rest
    )


class ALFWorldToolsEnv(ToolEnv, GameEnv):
    """Household games by tool calls; see `alfworld_tools`."""

    extra_info: ClassVar[Mapping[str, InfoValue]] = {**CALL_INFO, **GAME_INFO}
    role = "You act in a household to reach a goal, one command at a time, with the tool env_step."
    closing = "Each response makes one call of env_step; its command is one of the admissible commands, to the letter."

    def __init__(self, tasks: GameSource, game: GameSettings, last_actions: int, **settings: Any) -> None:
        settings = {"max_steps": MAX_STEPS, "max_calls_per_step": 1, **settings}
        super().__init__((), tasks, observation="messages", **settings)
        self.playing = Playing(game)
        self._said = ""
        self._valid, self._played = True, False
        self._past: deque[str] = deque(maxlen=last_actions)

    def own_tools(self) -> Sequence[EnvTool]:
        """`env_step`."""
        parameters = {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "One of the admissible commands."}},
            "required": ["command"],
            "additionalProperties": False,
        }
        return [EnvTool(TOOL, "Play one command in the household.", parameters, self._play)]

    def demonstration(self) -> list[str]:
        """A call for each command that wins from here."""
        return [self.written(ToolCall(TOOL, {"command": command})) for command in self.playing.solution()]

    def begin(self, task: Task) -> str:
        """Begin the game; the state at its start."""
        super().begin(task)
        self._past.clear()
        self._valid = True
        opening = self.playing.start(task, lambda count: int(self.np_random.integers(count)))
        self._said = opening.rpartition("\n\nYour task is to:")[0] or opening
        self._info.update(self.playing.info(task, True))
        return self._state()

    def advance(self, action: str) -> Turn:
        """Play the call of a response."""
        self._valid = self._played = False
        turn = super().advance(action)
        won = self.playing.engine.won
        if not self._played:
            self._said = turn.feedback
        info = {**turn.info, **self.playing.info(self.task, self._valid)}
        return replace(
            turn,
            feedback=self._state(),
            parts={**turn.parts, "task": float(won)},
            ended="won" if won else turn.ended,
            success=won,
            info=info,
        )

    def answer(self, response: str) -> Turn:
        """A response without a call plays nothing."""
        return Turn(f"No call of {TOOL} was found in the response; nothing was played.", info={"error_codes": ()})

    def _play(self, params: dict[str, Any]) -> dict[str, Any]:
        command: str = params["command"]
        self._played = True
        self._said, self._valid = self.playing.play(command)
        self._past.append(command.strip())
        return {"status": "success", "data": {"feedback": self._said}, "text": self._said}

    def _state(self) -> str:
        parts = [f"Task: {self.playing.goal}", f"Observation: {self._said}"]
        if self._past.maxlen:
            parts.append("Last actions: " + ("; ".join(self._past) or "none"))
        commands = [command for command in self.playing.engine.admissible if command != "help"]
        return "\n\n".join([*parts, "Admissible commands:\n" + "\n".join(commands)])

    def _observe(self, new_text: str) -> tuple[Message, ...]:
        state = Message(role="user", content=new_text)
        return (Message(role="system", content=self.system_prompt), state) if self.system_prompt else (state,)

    def own_state(self) -> dict[str, Any]:
        """What was said last, and the last actions."""
        return {**super().own_state(), "said": self._said, "past": list(self._past)}

    def take_own_state(self, state: dict[str, Any]) -> None:
        """Take up what `own_state` gave."""
        super().take_own_state(state)
        self._said = state["said"]
        self._past.clear()
        self._past.extend(state["past"])
