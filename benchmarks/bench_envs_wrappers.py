"""What wrappers cost: steps of real tasks with a stack of wrappers against the same steps without, in one run.

    .venv/bin/python benchmarks/bench_envs_wrappers.py                        the bundled samples, half a minute
    AGENTR1_DATA=FOLDER .venv/bin/python benchmarks/bench_envs_wrappers.py    the official data in FOLDER
    .venv/bin/python benchmarks/bench_envs_wrappers.py --quick                seconds; for a look and for the tests

Every stack plays the same episodes as the bare environment, the scripted expert's; they take turns, episode by episode,
and a step counts with the fastest of its rounds, so that a busy moment spoils no figure. Only `step` is timed. A second
bare environment shows how far two equal ones come apart.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import agentr1_envs  # noqa: F401  registers the ids
import gymnasium
from agentr1_envs.wrappers import (
    AppendContext,
    Exchange,
    FirstAndLastContext,
    MarkovContext,
    SummaryContext,
    WindowContext,
)
from agentr1_tools.calculator import Calculator
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit
from rich.console import Console
from rich.table import Table

GOAL = 0.05
CALCULATOR = Calculator()
CALCULATOR.cacheable = False  # so that every round runs every call
TASKS = (
    ("ToolEnv, the calculator", "agentr1/ToolEnv-v0", {"tools": [CALCULATOR]}),
    ("ALFWorld", "agentr1/ALFWorld-v0", {"split": "valid_seen"}),
    ("WebShop", "agentr1/WebShop-v0", {}),
)
BARE = "bare"
Env = gymnasium.Env[Any, Any]


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rounds: int
    episodes: int


FULL = Sizes(rounds=80, episodes=4)
QUICK = Sizes(rounds=2, episodes=1)


def gymnasiums(env: Env) -> Env:
    """The wrappers that `gymnasium.make` puts around an environment, and the one that counts rewards."""
    return RecordEpisodeStatistics(TimeLimit(OrderEnforcing(PassiveEnvChecker(env)), max_episode_steps=10_000))


def summary(so_far: str, step: Exchange) -> str:
    """The commands alone."""
    return f"{so_far}; {step.action:.40}"


STACKS: dict[str, Callable[[Env], Env]] = {
    BARE: lambda env: env,
    "bare, once more": lambda env: env,
    "Gymnasium's four": gymnasiums,
    "four + append": lambda env: AppendContext(gymnasiums(env)),
    "four + window of 3": lambda env: WindowContext(gymnasiums(env), 3),
    "four + first and last": lambda env: FirstAndLastContext(gymnasiums(env)),
    "four + summary": lambda env: SummaryContext(gymnasiums(env), summary),
    "four + Markov": lambda env: MarkovContext(gymnasiums(env)),
}


def episode(env: Env, seed: int) -> list[int]:
    """Nanoseconds of every step of the expert's episode."""
    env.reset(seed=seed)
    spent: list[int] = []
    for action in env.get_wrapper_attr("demonstration")():
        begun = time.perf_counter_ns()
        env.step(action)
        spent.append(time.perf_counter_ns() - begun)
    return spent


def measure(env_id: str, kwargs: dict[str, Any], sizes: Sizes) -> dict[str, float]:
    """Microseconds of a step with each stack."""
    envs = {name: wrap(gymnasium.make(env_id, **kwargs)) for name, wrap in STACKS.items()}
    order = list(envs)
    best: dict[tuple[str, int], list[int]] = {}
    for turn in range(sizes.rounds + 1):
        for seed in range(sizes.episodes):
            order.append(order.pop(0))
            for name in order:
                spent = episode(envs[name], seed)
                if turn:  # the first round opens data and fills caches
                    known = best.get((name, seed), spent)
                    best[name, seed] = [min(pair) for pair in zip(known, spent, strict=True)]
    for env in envs.values():
        env.close()
    steps = {name: [ns for (of, _), each in best.items() if of == name for ns in each] for name in STACKS}
    return {name: sum(each) / len(each) / 1000 for name, each in steps.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Print one table for each task."""
    parser = argparse.ArgumentParser(description="What wrappers cost beside a step of a real task.")
    parser.add_argument("--quick", action="store_true", help="small sizes: seconds, and figures of little weight")
    sizes = QUICK if parser.parse_args(argv).quick else FULL
    console = Console(width=110)
    missed = 0
    for title, env_id, kwargs in TASKS:
        found = measure(env_id, kwargs, sizes)
        table = Table("stack", "µs a step", "beyond the bare, µs", "overhead", f"goal {GOAL:.0%}")
        for name, micros in found.items():
            over = micros / found[BARE] - 1
            missed += over > GOAL and not name.startswith(BARE)
            verdict = "" if name.startswith(BARE) else "met" if over <= GOAL else "missed"
            table.add_row(name, f"{micros:.1f}", f"{micros - found[BARE]:+.1f}", f"{over:+.1%}", verdict)
        console.print(f"\n{title}", highlight=False)
        console.print(table)
    console.print(f"{missed} stacks missed the goal.")


if __name__ == "__main__":
    main()
