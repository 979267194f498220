"""``make quickstart``: a small agent, from nothing to a visible gain, on a CPU in minutes.

Makes a model from scratch, then runs the quickstart's recipe under the ``deepspeed`` launcher like any other run, and
prints what its own evaluations found. Everything else is in the recipe.
"""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from agentr1_train.config import Recipe, load_recipe
from agentr1_train.errors import AgentR1Error, RunFailedError
from agentr1_train.init_model import ModelShape, init_model_for
from agentr1_train.tracking import EVENTS_FILE, read_events

RECIPE = Path("packages/agentr1-train/recipes/gsm8k_grpo_quickstart.toml")


@dataclass(frozen=True)
class Arguments:
    """Train a small agent on a CPU until it visibly learns."""

    recipe: Path = RECIPE
    """The run; from the root of the repository."""
    ranks: int = 2
    """Processes under the launcher, one core each."""
    port: int = 29511
    """Where the ranks meet."""
    seed: int | None = None
    """Replaces the recipe's seed; the run folder then ends in it."""
    permute_returns: bool = False
    """The control: returns are permuted over the batch, so nothing should be learned."""


def quickstart(arguments: Arguments) -> Path:
    """Run it and return the run folder.

    Raises:
        RunFailedError: the training process ended with an error.
    """
    recipe = load_recipe(arguments.recipe)
    overrides = _overrides(arguments, recipe)
    folder = Path(overrides["--run-dir"])
    console = Console(highlight=False)
    if folder.exists():
        console.print(f"Removing the previous run in {folder}.")
        shutil.rmtree(folder)
    started = time.perf_counter()
    if not Path(recipe.model.path).exists():
        parameters = init_model_for(recipe, ModelShape(hidden=128, layers=3, heads=4), episodes=500)
        console.print(f"Made a model of {parameters:,} parameters and its tokenizer in {recipe.model.path}.")
    code = subprocess.call(_command(arguments, overrides), env=rank_environment())
    if code:
        raise RunFailedError(f"training ended with exit code {code}; its last lines above say why.")
    _show(console, folder, time.perf_counter() - started)
    return folder


def _overrides(arguments: Arguments, recipe: Recipe) -> dict[str, str]:
    folder, overrides = recipe.run_dir, {}
    if arguments.seed is not None:
        folder += f"-seed{arguments.seed}"
        overrides["--seed"] = str(arguments.seed)
    if arguments.permute_returns:
        folder += "-permuted"
        overrides["--algorithm.permute-returns"] = "batch"
    return overrides | {"--run-dir": folder}


def _command(arguments: Arguments, overrides: dict[str, str]) -> list[str]:
    launcher = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_accelerators", str(arguments.ranks)]
    launcher += ["--master_port", str(arguments.port), "--module", "agentr1_train", str(arguments.recipe)]
    return launcher + [part for pair in overrides.items() for part in pair]


def rank_environment() -> dict[str, str]:
    """One thread a rank: the model is small, and ranks that share cores slow each other down.

    The allocator keeps what a step frees for the next one instead of returning it to the system (glibc).
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    allocator = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 31)}
    return os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PATH": path} | allocator


def _show(console: Console, folder: Path, seconds: float) -> None:
    evaluations = [event for event in read_events(folder / EVENTS_FILE) if event["kind"] == "evaluation"]
    table = Table(title="Success on held-out problems")
    for name in ("", "updates", "success", "95 % interval", "steps an episode"):
        table.add_column(name, justify="left" if not name else "right")
    for name, event in (("supervised start", evaluations[0]), ("after GRPO", evaluations[-1])):
        table.add_row(name, str(event["step"]), *_cells(event))
    console.print(table)
    gain = 100 * (evaluations[-1]["eval/success"] - evaluations[0]["eval/success"])
    console.print(f"{gain:+.1f} points in {seconds:.0f} s. Curve: {folder / 'curve.png'}  Model: {folder / 'model'}")


def _cells(event: dict[str, Any]) -> tuple[str, str, str]:
    low, high = 100 * event["eval/success_low"], 100 * event["eval/success_high"]
    return f"{100 * event['eval/success']:.1f} %", f"{low:.1f} to {high:.1f}", f"{event['eval/steps']:.2f}"


def main() -> int:
    """Parse the command line, run, and return the exit code."""
    try:
        quickstart(tyro.cli(Arguments, prog="python -m agentr1_train.quickstart"))
    except AgentR1Error as error:
        print(f"quickstart: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
