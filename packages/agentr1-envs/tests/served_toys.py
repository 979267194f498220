"""Environments that servers are tried with: a stranger's, which does what its actions say."""

import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from agentr1_envs import Text


class OddError(LookupError):
    """No client knows it."""


class Stranger(gymnasium.Env[str, str]):
    """Says what it is told, counts, and fails when asked to. Its observations depend on `np_random` at each step."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012 (Gymnasium's own form)
    stop = ("STOP",)

    def __init__(self, log: str = "", greeting: str = "hello", render_mode: str | None = None) -> None:
        self.observation_space, self.action_space = Text(), gymnasium.spaces.Text(100, charset="abcdefghij 0123456789.")
        self.render_mode, self._log, self._greeting, self._count = render_mode, log, greeting, 0

    @property
    def system_prompt(self) -> str:
        return f"count {self._count}"

    @property
    def tool_schemas(self) -> list[dict[str, Any]]:
        raise AttributeError("none today")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self._count = 0
        return f"{self._greeting} {self.np_random.integers(1000)}", self._info(options)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        word, _, rest = action.partition(" ")
        match word:
            case "sleep":
                time.sleep(float(rest))
            case "odd":
                raise OddError(rest)
            case "key":
                raise KeyError(rest)
            case "exit":
                raise SystemExit(3)
            case "object":
                return object(), 0.0, False, False, {}  # type: ignore[return-value]
        self._count += 1
        observation = f"{action} {self._count} {self.np_random.integers(1000)}"
        return observation, np.float32(0.5), word == "end", False, self._info(None)  # type: ignore[return-value]

    def render(self) -> str:
        return f"rendered {self._count}"

    def get_state(self) -> dict[str, int]:
        return {"count": self._count}

    def set_state(self, state: dict[str, int]) -> None:
        self._count = state["count"]

    def close(self) -> None:
        if self._log:
            with Path(self._log).open("a") as log:
                log.write("closed\n")

    def _info(self, options: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "names": ("a", "b"),
            "options": options or {},
            "array": np.array([[1, 2]], dtype=np.int16),
            "share": np.float32(0.1),
            "worst": float("-inf"),
            "count": self._count,
        }


gymnasium.register("toys/Stranger-v0", Stranger, order_enforce=False, disable_env_checker=True)
