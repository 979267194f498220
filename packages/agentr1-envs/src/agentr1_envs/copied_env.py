"""Episodes that can be put aside and taken up: what an environment keeps of one, as data. It copies no tool.

A class adds what it keeps to what the class above it does, in `own_state` and `take_own_state`.
"""

import json
from typing import Any, cast

from agentr1_envs.agent_env import AgentEnv, Exchange
from agentr1_envs.errors import SettingError, UnknownTaskError


class CopiedEnv(AgentEnv):
    """An environment whose episodes can be copied. Random draws are not part of an episode: reset with its seed."""

    @property
    def is_copied(self) -> bool:
        """False where something of the episode is kept that no data stands for; it can then only be played again."""
        return True

    def own_state(self) -> dict[str, Any]:
        """What is kept of an episode beside what `AgentEnv` keeps, JSON-ready."""
        return {}

    def take_own_state(self, state: dict[str, Any]) -> None:
        """Take up what `own_state` gave; `task` is the state's."""

    def get_state(self) -> dict[str, Any] | None:
        """The episode as JSON-ready data, or None where it cannot be copied.

        `set_state` of any environment with the same tasks and settings takes it up.
        """
        if not self.is_copied:
            return None
        state = {
            "task_id": self.task.task_id,
            "steps": self._steps,
            "over": self._over,
            "opening": self._opening,
            "info": self._info,
            "history": [[past.action, past.feedback] for past in self._history],
            "transcript": self._transcript,
        }
        return json.loads(json.dumps({**state, **self.own_state()}))

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from a state that `get_state` gave.

        Raises:
            UnknownTaskError: the split does not hold its task. SettingError: it is no such state.
        """
        state = json.loads(json.dumps(state))
        try:
            self._task = self.tasks.find(state["task_id"])
            self.take_own_state(state)
            self._history.clear()
            self._history.extend(Exchange(*past) for past in state["history"])
            info: dict[str, Any] = state["info"]
            self._info = {
                name: tuple(cast("list[str]", value)) if isinstance(value, list) else value
                for name, value in info.items()
            }
            self._steps, self._over = state["steps"], state["over"]
            self._opening, self._transcript = state["opening"], state["transcript"]
        except UnknownTaskError:
            raise
        except (KeyError, TypeError) as error:
            raise SettingError(f"state: is none that get_state() gave: {error!r}.") from error
