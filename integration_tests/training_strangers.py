"""What the training tests put on PYTHONPATH: a stranger's environment, and faults that strike a real process.

``FAULT=optim_step:6:SIGKILL`` kills the process at its sixth optimizer step, between backward and step; ``seal``
strikes inside a checkpoint, before its manifest; ``step`` in the environment. ``FAULT_RANK`` spares the other ranks.
``forward_backward:2:RLIMIT_AS`` leaves the process 96 MiB of memory from its second update on. ``step:20:SERVER`` kills
vLLM's server, which this process started. ``reward:17:1e30`` makes the rewards so large from then on.
"""

import contextlib
import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import gymnasium


class SymbolEnv(gymnasium.Env[str, str]):
    """Two steps: each shows a symbol; the reward comes at the end, for having repeated both."""

    observation_space = gymnasium.spaces.Text(100)
    action_space = gymnasium.spaces.Text(100)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.word = "".join("ab"[i] for i in self.np_random.integers(2, size=2))
        self.said = ""
        return self.word[0], {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        strike("step")
        self.said += action if len(action) == 1 else "?"
        done = len(self.said) == 2
        right = sum(said == shown for said, shown in zip(self.said, self.word, strict=False))
        return self.word[-1], _blown_up(action, right / 2 if done else 0.0), done, False, {}


gymnasium.register("Strangers-v0", entry_point=SymbolEnv)

_place, _count, _signal = (os.environ.get("FAULT", "") + "::").split(":")[:3]
_left = int(_count or 0)
_rank = os.environ.get("RANK", "0")


def strike(place: str) -> None:
    """Send the signal, or set the limit, when this is the place and the count is up."""
    global _left
    if place == _place and os.environ.get("FAULT_RANK", _rank) == _rank:
        _left -= 1
        if _left == 0 and _signal == "RLIMIT_AS":
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + 96 * 2**20, resource.RLIM_INFINITY))
        elif _left == 0 and _signal == "SERVER":
            os.kill(_server(), signal.SIGKILL)
        elif _left == 0:
            os.kill(os.getpid(), getattr(signal, _signal))


def _blown_up(action: str, reward: float) -> float:
    """The reward, or what an environment gone wrong gives for an action: other numbers for other actions."""
    global _left
    if _place != "reward":
        return reward
    _left -= 1
    return float(_signal) * sum(action.encode()) / 100 if _left <= 0 else reward


def _server() -> int:
    """The process id of vLLM's server among the children of this process."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and "vllm.entrypoints" in (folder / "cmdline").read_text():
                return int(folder.name)
    raise RuntimeError("this process started no vLLM server")


def _before(owner: Any, name: str, place: str) -> None:
    original = getattr(owner, name)

    def struck(*args: Any, **kwargs: Any) -> Any:
        strike(place)
        return original(*args, **kwargs)

    setattr(owner, name, struck)


if _place in ("forward_backward", "optim_step", "seal"):
    from agentr1_train import checkpoint
    from agentr1_train.engine.deepspeed import DeepSpeedEngine

    _before(DeepSpeedEngine, "forward_backward", "forward_backward")
    _before(DeepSpeedEngine, "optim_step", "optim_step")
    _before(checkpoint, "_seal", "seal")


def answers(prompt: str, key: tuple[int, ...]) -> str:
    """A script whose answers depend on the episode alone: for rollouts that no weight can change."""
    return "ab"[hash(key) % 2]


SERVER = 0
"""Process of a tool server that ``calls`` kills, once."""


def calls(prompt: str, key: tuple[int, ...]) -> str:
    """A script that calls the calculator and then answers; in the second update its server is gone."""
    global SERVER
    update = key[2]
    if update == 1 and SERVER:
        os.kill(SERVER, signal.SIGKILL)
        SERVER = 0
    if key[-1] == 0:
        call = {"name": "calculator", "arguments": {"expression": f"{key[-2]} * {update} + 42"}}
        return f"<tool_call>{json.dumps(call)}</tool_call>"
    return "<answer>42</answer>"
