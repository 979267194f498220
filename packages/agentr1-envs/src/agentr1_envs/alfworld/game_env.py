"""What the ALFWorld environments add to `AgentEnv`: an expert, and episodes that can be put aside and taken up."""

from typing import Any

from agentr1_envs.alfworld.games import GameTask
from agentr1_envs.alfworld.playing import Playing
from agentr1_envs.copied_env import CopiedEnv


class GameEnv(CopiedEnv):
    """An environment with a game in play."""

    playing: Playing

    def expert(self) -> str:
        """The next command of the walkthrough while it applies, or else of a plan; "" when there is neither."""
        return self.playing.expert()

    def own_state(self) -> dict[str, Any]:
        """The game."""
        return {**super().own_state(), "game": self.playing.get_state()}

    def take_own_state(self, state: dict[str, Any]) -> None:
        """Take up the game."""
        assert isinstance(self.task, GameTask)
        self.playing.set_state(self.task, state["game"])
        super().take_own_state(state)

    def close(self) -> None:
        """Let go of the engine's game."""
        self.playing.engine.close()
        super().close()
