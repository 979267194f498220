"""What a household game costs in the native engine, beside the original one: ratios, in one run, on this machine.

    make bench-envs                                                  a minute or two
    .venv/bin/python benchmarks/bench_envs_alfworld.py --quick       a quarter of a minute; for a look and for the tests

Both engines play the same commands of the same games in turn, so that a busy moment hits them alike. Seconds are CPU
seconds. The games are those that `agentr1/ALFWorld-v0` finds: official ones where AGENTR1_DATA or ALFWORLD_DATA names
them, else the bundled ones, which are smaller. Where the original is missing (make setup-alfworld) ours runs alone.
"""

import argparse
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_envs.alfworld.engines import make_engine
from agentr1_envs.alfworld.game import GameFile, load_game
from agentr1_envs.alfworld.games import GameTask, load_games
from agentr1_envs.alfworld.session import Session
from agentr1_envs.errors import DependencyMissingError
from rich.console import Console
from rich.table import Table

CONSOLE = Console(width=110)
GOALS = {"load": "", "reset": "", "load and reset": "20", "step": "50"}
ENVIRONMENTS = 64

# In a process of its own: VmHWM is the most that process ever held.
MEMORY = """
import gymnasium, pathlib
envs = [gymnasium.make("agentr1_envs:agentr1/ALFWorld-v0", split="valid_seen") for _ in range({count})]
for number, env in enumerate(envs):
    _, info = env.reset(seed=number)
    for _ in range(10):
        *_, info = env.step(info["admissible_commands"][0])
status = pathlib.Path("/proc/self/status").read_text()
print(int(status.split("VmHWM:")[1].split()[0]) / 1024)
"""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    games: int
    steps: int


FULL = Sizes(games=20, steps=15)
QUICK = Sizes(games=2, steps=4)


class Native:
    """Our engine, with the parts that are measured apart."""

    def load(self, file: GameFile) -> None:
        self._game = load_game(file)

    def reset(self) -> str:
        self._session = Session(self._game)
        return self._session.intro()

    def step(self, command: str) -> str:
        return self._session.step(command)

    @property
    def admissible(self) -> tuple[str, ...]:
        return self._session.admissible


class Clock:
    """CPU seconds of one engine, by what was done."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {"load": [], "reset": [], "step": []}

    def time(self, what: str, run: Callable[[], Any]) -> Any:
        started = time.process_time()
        result = run()
        self.seconds[what].append(time.process_time() - started)
        return result

    def medians(self) -> dict[str, float]:
        both = [sum(pair) for pair in zip(self.seconds["load"], self.seconds["reset"], strict=True)]
        found = {what: statistics.median(values) for what, values in self.seconds.items()}
        return {"load": found["load"], "reset": found["reset"], "load and reset": statistics.median(both), **found}


def walk(file: GameFile, steps: int, seed: int) -> Iterator[str]:
    """The commands of a random walk, more often one that changes something."""
    draw, session = random.Random(seed), Session(load_game(file))
    for _ in range(steps):
        helpful = [c for c in session.admissible if not c.startswith(("go to", "help", "look", "inventory", "examine"))]
        command = draw.choice(helpful if helpful and draw.random() < 0.6 else session.admissible)
        session.step(command)
        yield command


def play(engines: Sequence[tuple[Any, Clock]], file: GameFile, commands: Sequence[str]) -> None:
    """One game in every engine, in turn.

    Raises:
        SystemExit: they do not say the same.
    """
    transcripts: list[list[Any]] = []
    for engine, clock in engines:
        clock.time("load", lambda engine=engine: engine.load(file))
        said = [clock.time("reset", engine.reset)]
        for command in commands:
            said += [clock.time("step", lambda engine=engine, command=command: engine.step(command)), engine.admissible]
        transcripts.append(said)
    if any(said != transcripts[0] for said in transcripts):
        raise SystemExit(f"game {file.name}: the engines do not say the same")


def original() -> Any:
    """The original engine, or None where it is not installed."""
    try:
        return make_engine("textworld")
    except DependencyMissingError as error:
        CONSOLE.print(f"Ours alone: {error} Here: make setup-alfworld.", highlight=False, markup=False)
        return None


def speed(sizes: Sizes) -> None:
    """Load, reset and step, in both engines."""
    games = [task for task in load_games("valid_seen") if isinstance(task, GameTask)]
    chosen = random.Random(0).sample(games, min(sizes.games + 1, len(games)))
    native, other = Clock(), Clock()
    stock = original()
    for number, task in enumerate(chosen):
        if number == 1:  # what is read once a process is paid by the first game
            native, other = Clock(), Clock()
        file = task.file(task.question)
        engines = [(Native(), native)] + ([(stock, other)] if stock else [])
        play(engines, file, list(walk(file, sizes.steps, number)))
    table = Table("", "original, ms", "native, ms", "faster by", "goal")
    theirs = other.medians() if stock else {}
    for what, seconds in native.medians().items():
        ratio = f"{theirs[what] / seconds:.0f}" if stock else ""
        table.add_row(what, f"{theirs[what] * 1000:.1f}" if stock else "", f"{seconds * 1000:.2f}", ratio, GOALS[what])
    CONSOLE.print(
        f"\n{len(chosen) - 1} games of {games[0].source.partition(',')[0]}, {sizes.steps} steps each: medians"
    )
    CONSOLE.print(table)


def memory() -> None:
    """What a process holds that has many environments in play."""
    script = MEMORY.format(count=ENVIRONMENTS)
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    CONSOLE.print(f"\n{ENVIRONMENTS} environments in one process: {float(done.stdout):.0f} MB at most (goal: 200)")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the ALFWorld engines side by side.")
    parser.add_argument("--quick", action="store_true", help="few games, few steps")
    sizes = QUICK if parser.parse_args().quick else FULL
    CONSOLE.print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}", highlight=False)
    speed(sizes)
    memory()


if __name__ == "__main__":
    main()
