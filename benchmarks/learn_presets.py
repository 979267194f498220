"""What presets learn from one supervised start, over seeds: held-out success before and after, as a table.

    .venv/bin/python benchmarks/learn_presets.py alfworld      four presets, three seeds; an hour on two cores
    .venv/bin/python benchmarks/learn_presets.py quickstart    every preset, one seed; twenty minutes
    .venv/bin/python benchmarks/learn_presets.py alfworld --presets gigpo --seeds 1

Each run is the recipe under the ``deepspeed`` launcher, on two ranks; its command is printed first. A run that has
ended is not made again: after a stop, a second call goes on with the next one. Other settings want another ``--out``.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentr1_train.config import load_recipe
from agentr1_train.init_model import ModelShape, init_model_for
from agentr1_train.presets import PRESETS
from agentr1_train.quickstart import rank_environment
from agentr1_train.tracking import EVENTS_FILE, read_events

RECIPES = Path(__file__).resolve().parent.parent / "packages" / "agentr1-train" / "recipes"
FINISHED = "finished"
TOKENIZER_EPISODES = 500

CRITIC = ("--optimizer.critic-lr", "2e-3", "--algorithm.bootstrap-truncated", "False")
"""A critic made anew learns faster than the policy; and the limit of steps belongs to both tasks."""

ONE_STEP = ("--optimizer.minibatches", "1", "--optimizer.lr", "1e-3")
"""For clips of 3e-4, which would stop most of what follows the first optimizer step of an update. Where nothing is
clipped, later steps run away from what was sampled; there the recipe's learning rate stays."""


@dataclass(frozen=True)
class Study:
    """A recipe, the model it starts from, and what its presets need beside their names."""

    recipe: Path
    shape: ModelShape
    presets: tuple[str, ...]
    seeds: tuple[int, ...]
    games: tuple[tuple[str, int, int], ...] = ()
    """ALFWorld games to generate: split, seed, count."""
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What further is said to a preset."""


THINGS = ("apple", "mug", "plate", "fork", "soapbar", "cloth", "book", "candle", "desklamp")

STUDIES = {
    "alfworld": Study(
        RECIPES / "alfworld_gigpo_small.toml",
        ModelShape(layers=3, heads=2, vocabulary=1024, rope_theta=1e7, digits=False),
        presets=("gigpo", "grpo", "ppo", "steppo"),
        seeds=(1, 2, 3),
        games=(("train", 11, 6000), ("valid_unseen", 2, 1200)),
        settings=dict.fromkeys(("ppo", "steppo"), CRITIC) | {"grpo": ("--updates", "50")},
    ),
    "quickstart": Study(
        RECIPES / "gsm8k_grpo_quickstart.toml",
        ModelShape(layers=3),
        presets=tuple(name for name in PRESETS if name != "pspo"),  # another name for steppo
        seeds=(2,),
        settings=dict.fromkeys(("ppo", "turn_ppo"), CRITIC)
        | dict.fromkeys(("reinforce", "remax"), ONE_STEP[:2])
        | {"agent_r1": CRITIC[:2], "gspo": ONE_STEP, "steppo": (*CRITIC, *ONE_STEP)},
    ),
}


def main() -> int:
    """Make what is missing, then show what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--presets", nargs="+", choices=PRESETS, metavar="PRESET", help="by default those of the study")
    parser.add_argument("--seeds", nargs="+", type=int, help="by default those of the study")
    parser.add_argument("--out", type=Path, default=Path("runs/learn"), help="folder of the runs")
    parser.add_argument("--port", type=int, default=29531, help="where the ranks meet")
    parser.add_argument("--further", default="", help="overrides for every run, in one string")
    arguments = parser.parse_args()
    study, out = STUDIES[arguments.study], arguments.out / arguments.study
    make_start(study, out, arguments.port, shlex.split(arguments.further))
    rows = []
    for preset in arguments.presets or study.presets:
        for seed in arguments.seeds or study.seeds:
            overrides = ["--model.path", str(out / "start" / "supervised" / "model"), "--supervised.batches", "0"]
            overrides += ["--algorithm.preset", preset, "--seed", str(seed), *study.settings.get(preset, ())]
            folder = out / f"{preset}-{seed}"
            launch(study, folder, arguments.port, [*overrides, *shlex.split(arguments.further)])
            rows.append(row_of(preset, seed, folder))
            print(rows[-1], flush=True)
    print("\n| preset | seed | supervised start | after | gain | minutes |\n| --- | --- | --- | --- | --- | --- |")
    print(*rows, sep="\n")
    return 0


def make_start(study: Study, out: Path, port: int, further: Sequence[str]) -> None:
    """Make the games, the model and its supervised start, where they are missing."""
    recipe = load_recipe(study.recipe)
    for split, seed, count in study.games:
        made = Path(recipe.env.kwargs["data"])
        if not (made / f"{split}.jsonl").exists():
            command = ["agentr1-envs", "generate", "alfworld", "--most", "1", "--things", *THINGS]
            run([*command, "--seed", str(seed), "--count", str(count), "--split", split, "--out", str(made)])
    if not Path(recipe.model.path).exists():
        parameters = init_model_for(recipe, study.shape, episodes=TOKENIZER_EPISODES)
        print(f"{parameters:,} parameters in {recipe.model.path}", flush=True)
    launch(study, out / "start", port, further, command=("supervised",))


def launch(study: Study, folder: Path, port: int, overrides: Sequence[str], command: Sequence[str] = ()) -> None:
    """One run on two ranks into a folder of its own; nothing where one has ended there."""
    if (folder / FINISHED).exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    launcher = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_accelerators", "2"]
    launcher += ["--master_port", str(port), "--module", "agentr1_train"]
    run([*launcher, *command, str(study.recipe), "--run-dir", str(folder), *overrides])
    (folder / FINISHED).touch()


def run(command: Sequence[str]) -> None:
    """Say and run a command, in the environment of the quickstart's ranks."""
    print("$", shlex.join(command), flush=True)
    subprocess.run(command, env=rank_environment(), check=True)


def row_of(preset: str, seed: int, folder: Path) -> str:
    """One line of the table."""
    events = read_events(folder / EVENTS_FILE)
    evaluations = [event for event in events if event["kind"] == "evaluation"]
    start, end = evaluations[0], evaluations[-1]
    gain = 100 * (end["eval/success"] - start["eval/success"])
    minutes = events[-1]["time/elapsed"] / 60
    return f"| `{preset}` | {seed} | {success(start)} | {success(end)} | {gain:+.1f} | {minutes:.1f} |"


def success(event: dict[str, Any]) -> str:
    """Success of an evaluation, with its interval."""
    low, high = 100 * event["eval/success_low"], 100 * event["eval/success_high"]
    return f"{100 * event['eval/success']:.1f} % ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as failed:
        sys.exit(f"learn_presets: the command above ended with exit code {failed.returncode}.")
    except KeyboardInterrupt:
        sys.exit(130)
