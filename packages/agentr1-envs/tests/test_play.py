import io
from typing import Any

import gymnasium
from agentr1_envs.play import play
from rich.console import Console


def played(lines: str, **kwargs: Any) -> tuple[bool, str]:
    env = gymnasium.make("agentr1/GSM8K-v0", **kwargs)
    console = Console(file=io.StringIO(), width=200)
    ended = play(env, io.StringIO(lines), console, seed=1)
    env.close()
    return ended, console.file.getvalue()  # type: ignore[attr-defined]


def test_play_stops_at_quit_and_at_the_end_of_input() -> None:
    for lines in ("", ":quit\n", "<tool_call>{\n:quit\n"):
        ended, shown = played(lines)
        assert not ended
        assert "Stopped before the end" in shown


def test_play_takes_line_breaks_and_shows_markup_as_it_is() -> None:
    ended, shown = played("[bold]first\\nsecond <answer>0</answer>\n", observation="messages")
    assert ended
    assert "[bold]first" in shown
    assert "no success (answer)" in shown
