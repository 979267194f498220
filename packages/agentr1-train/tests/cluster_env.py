"""An environment for tests of actors, which must find it in a file: ``cluster_env:Diary-v0``.

Three steps; what it says and pays depends on the seed and on all it was told. With ``log`` it writes down what happens,
a line each, so that a test knows which process plays what. With ``gate`` each step waits until that file is there, so
that a test decides what happens in the middle of an episode.
"""

import os
import time
from pathlib import Path
from typing import Any

import gymnasium

GATE_S = 90.0
"""A gate that nobody opens holds for so long."""


class DiaryEnv(gymnasium.Env[str, str]):
    observation_space = gymnasium.spaces.Text(1000)
    action_space = gymnasium.spaces.Text(1000)
    task_ids = ("left", "right")

    def __init__(self, log: str = "", gate: str = "", deadly: tuple[int, ...] = (), broken: str = "") -> None:
        if broken:
            raise ValueError(broken)
        self.log, self.gate, self.deadly = log, gate, tuple(deadly)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.seed, self.told = seed, [f"{self.np_random.integers(1000)}"]
        self._write("reset")
        if seed in self.deadly:
            os._exit(1)
        return " ".join(self.told), {"task_id": (options or {}).get("task_id", "left")}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._write("step")
        self._wait()
        self.told.append(f"{len(action)} {self.np_random.integers(1000)}")
        return " ".join(self.told), float(len(action) % 7), len(self.told) == 4, False, {}

    def get_state(self) -> dict[str, Any]:
        return {"told": list(self.told), "random": self.np_random.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        self.told, self.np_random.bit_generator.state = list(state["told"]), state["random"]

    def _wait(self) -> None:
        deadline = time.monotonic() + GATE_S
        while self.gate and not Path(self.gate).exists() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _write(self, what: str) -> None:
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{os.getpid()} {self.seed} {what}\n")


if "Diary-v0" not in gymnasium.registry:
    gymnasium.register("Diary-v0", entry_point=DiaryEnv)
