"""What the ALFWorld environments add to `AgentEnv`: an expert, and episodes that can be put aside and taken up."""

import json
from typing import Any, cast

from agentr1_envs.agent_env import AgentEnv, Exchange
from agentr1_envs.alfworld.games import GameTask
from agentr1_envs.alfworld.playing import Playing
from agentr1_envs.errors import SettingError, UnknownTaskError


class GameEnv(AgentEnv):
    """An environment with a game in play."""

    playing: Playing

    def expert(self) -> str:
        """The next command of the walkthrough while it applies, or else of a plan; "" when there is neither."""
        return self.playing.expert()

    def get_state(self) -> dict[str, Any]:
        """The episode as JSON-ready data; `set_state` of any environment with the same games takes it up."""
        state = {
            "task_id": self.task.task_id,
            "game": self.playing.get_state(),
            "steps": self._steps,
            "over": self._over,
            "opening": self._opening,
            "info": self._info,
            "history": [[past.action, past.feedback] for past in self._history],
            "transcript": self._transcript,
        }
        return json.loads(json.dumps({**state, **self.own_state()}))

    def own_state(self) -> dict[str, Any]:
        """What else an environment keeps of an episode, JSON-ready."""
        return {}

    def take_own_state(self, state: dict[str, Any]) -> None:
        """Take up what `own_state` gave."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from a state that `get_state` gave.

        Raises:
            UnknownTaskError: the split does not hold its game. SettingError: it is no such state.
        """
        state = json.loads(json.dumps(state))
        try:
            task = self.tasks.find(state["task_id"])
            assert isinstance(task, GameTask)
            self.playing.set_state(task, state["game"])
            self._history.clear()
            self._history.extend(Exchange(*past) for past in state["history"])
            info: dict[str, Any] = state["info"]
            self._info = {
                name: tuple(cast("list[str]", value)) if isinstance(value, list) else value
                for name, value in info.items()
            }
            self._task, self._steps, self._over = task, state["steps"], state["over"]
            self._opening, self._transcript = state["opening"], state["transcript"]
            self.take_own_state(state)
        except UnknownTaskError:
            raise
        except (KeyError, TypeError) as error:
            raise SettingError(f"state: is none that get_state() gave: {error!r}.") from error

    def close(self) -> None:
        """Let go of the engine's game."""
        self.playing.engine.close()
        super().close()
