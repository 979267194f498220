"""Play an environment in the terminal: it shows what the model would see and reads the responses from a stream."""

from collections.abc import Callable
from typing import Any, TextIO

import gymnasium
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

QUIT = ":quit"
EXPERT = ":expert"


def play(
    env: gymnasium.Env[Any, Any],
    stream: TextIO,
    console: Console,
    *,
    seed: int | None = None,
    task_id: str | None = None,
) -> bool:
    r"""Play one episode; a line of `stream` is a response, in which ``\n`` stands for a line break.

    ``:expert`` plays what the scripted expert would respond next, ``:quit`` or the end of the stream stops.

    Returns:
        True when the episode came to its end.
    """
    options = None if task_id is None else {"task_id": task_id}
    observation, info = env.reset(seed=seed, options=options)
    expert = _expert(env)
    if system := str(getattr(env.unwrapped, "system_prompt", "")):
        _show(console, system, "system")
    _show(console, _text(observation), f"task {info.get('task_id', '')}")
    console.print(f"Type a response ({EXPERT}: the scripted expert's, {QUIT}: stop).", style="dim")
    steps, total = 0, 0.0
    while True:
        line = stream.readline()
        if not line or line.strip() == QUIT:
            console.print("Stopped before the end of the episode.", style="dim")
            return False
        action = expert(steps) if line.strip() == EXPERT else line.rstrip("\n").replace("\\n", "\n")
        if action is None:
            console.print("There is no scripted response for this step.", style="yellow")
            continue
        _show(console, action, "response")
        observation, reward, terminated, truncated, info = env.step(action)
        steps, total = steps + 1, total + float(reward)
        _show(console, _text(observation), f"step {steps}, reward {float(reward):.2f}")
        if terminated or truncated:
            outcome = "success" if info.get("success") else "no success"
            console.print(f"{outcome} ({info.get('end_reason', '')}); {steps} steps, total reward {total:.2f}")
            return True


def _expert(env: gymnasium.Env[Any, Any]) -> Callable[[int], str | None]:
    script: list[str] = []
    if hasattr(env.unwrapped, "demonstration"):
        script = env.get_wrapper_attr("demonstration")()
    return lambda step: script[step] if step < len(script) else None


def _text(observation: Any) -> str:
    return observation if isinstance(observation, str) else str(observation[-1]["content"])


def _show(console: Console, text: str, title: str) -> None:
    console.print(Panel(Text(text), title=title, title_align="left"))
