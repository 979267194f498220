"""An environment as a stranger writes it, in a file of its own: the tests put this folder on PYTHONPATH.

Two steps: each shows a symbol, and the reward comes at the end, for having repeated both. ``SymbolEnv`` has nothing of
this project; ``ShownSymbolEnv`` adds a demonstration, ``LayeredSymbolEnv`` reward streams.
"""

from typing import Any

import gymnasium


class SymbolEnv(gymnasium.Env[str, str]):
    observation_space = gymnasium.spaces.Text(100)
    action_space = gymnasium.spaces.Text(100)

    def __init__(self, steps: int = 2, symbols: str = "ab", file: str = "") -> None:
        if file:
            with open(file) as lines:
                symbols = lines.read().strip()
        self.steps, self.symbols = steps, symbols

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.word = "".join(self.symbols[i] for i in self.np_random.integers(len(self.symbols), size=self.steps))
        self.said = ""
        return self.word[0], {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.said += action if len(action) == 1 else "?"
        at = len(self.said)
        done = at == self.steps
        return "b" if done else self.word[at], float(done and self.said == self.word), done, False, {}


class ShownSymbolEnv(SymbolEnv):
    """With a demonstration; ``spoil``: ``short``, ``wrong``, ``half`` (tasks that begin with an a) or ``broken``."""

    def __init__(self, spoil: str = "", **others: Any) -> None:
        super().__init__(**others)
        self.spoil = spoil

    def demonstration(self) -> list[str]:
        if self.spoil == "broken":
            raise RuntimeError("the solution is lost")
        if self.spoil == "short":
            return list(self.word[:-1])
        if self.spoil == "wrong" or (self.spoil == "half" and self.word[0] == "a"):
            return ["?"] * self.steps
        return list(self.word)


class LayeredSymbolEnv(SymbolEnv):
    """Pays a quarter for each right symbol in ``reward/env``, and the rest in ``reward/task``."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        observation, task, terminated, truncated, _ = super().step(action)
        step = 0.25 * (self.said[-1] == self.word[len(self.said) - 1])
        return observation, task + step, terminated, truncated, {"reward/env": step, "reward/task": task}


KINDS = {"Symbol-v0": SymbolEnv, "ShownSymbol-v0": ShownSymbolEnv, "LayeredSymbol-v0": LayeredSymbolEnv}
for name, kind in KINDS.items():
    if name not in gymnasium.registry:
        gymnasium.register(name, entry_point=kind)
