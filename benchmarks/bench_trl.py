"""One GRPO step beside TRL's, generation included: the same model, prompts, group, lengths and threads.

    make bench-train                                    puts TRL into .venvs/trl, apart from .venv, and runs this too
    .venv/bin/python benchmarks/bench_trl.py --quick    small sizes, for a look

Both sides take prompts of P tokens, sample G responses of at most 32 tokens to each at temperature 1, score them with
the same rule and take one AdamW step on the group-relative advantages, without a KL term. Each runs in processes of its
own, one at a time, in turn; the first step of a process warms it up and is not counted. The tasks have one step, since
a trainer of prompts and completions has no other: what the steps of an episode share is left out of the comparison.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, cast

import gymnasium
from rich.console import Console
from rich.table import Table

TRL = Path(__file__).parents[1] / ".venvs" / "trl"
RESPONSE = 32
CONSOLE = Console(width=110)


@dataclass(frozen=True)
class Sizes:
    """What a step holds."""

    prompt: int
    """Tokens of a prompt, its chat frame aside."""
    groups: int
    members: int
    hidden: int = 256
    layers: int = 4

    @property
    def name(self) -> str:
        return f"{self.groups} prompts of {self.prompt}, groups of {self.members}"


def question(seed: int, length: int) -> str:
    """Digits: each is one token of a model that `init-model` makes."""
    draw = Random(seed)
    return "".join(draw.choice("0123456789") for _ in range(length))


def reward(text: str) -> float:
    """A rule that untrained responses sometimes meet."""
    return float(sum(map(str.isalpha, text)) % 2)


class OneAnswer(gymnasium.Env[str, str]):
    """A prompt, a response, a reward."""

    observation_space = action_space = gymnasium.spaces.Text(4096)

    def __init__(self, length: int) -> None:
        self._length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return question(int(self.np_random.integers(1 << 30)), self._length), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", reward(action), True, False, {}


def ours(sizes: Sizes, model: Path, scratch: Path, steps: int) -> list[float]:
    """Seconds of each update of this project's trainer."""
    from agentr1_train.config import recipe_from_dict
    from agentr1_train.tracking import read_events
    from agentr1_train.trainer import train

    gymnasium.register(
        "bench/OneAnswer-v0", entry_point=cast(Any, OneAnswer), order_enforce=False, disable_env_checker=True
    )
    train(
        recipe_from_dict(
            {
                "run_dir": str(scratch / "run"),
                "updates": steps,
                "env": {"id": "bench/OneAnswer-v0", "kwargs": {"length": sizes.prompt}},
                "model": {"path": str(model)},
                "rollout": {
                    "groups": sizes.groups,
                    "group_size": sizes.members,
                    "concurrency": sizes.groups * sizes.members,
                    "max_prompt_tokens": sizes.prompt + 64,
                    "max_response_tokens": RESPONSE,
                },
                "sampler": {"max_batch": sizes.groups * sizes.members},
                "algorithm": {"preset": "grpo", "kl": "none"},
                "optimizer": {"lr": 1e-5},
                "engine": {"device": "cpu", "micro_batch_tokens": 16384},
                "tracking": {"tensorboard": False, "rollouts_every": 0},
            }
        )
    )
    updates = [event for event in read_events(scratch / "run" / "events.jsonl") if event["kind"] == "update"]
    return [sum(event[f"time/{part}"] for part in ("rollout", "experience", "update", "sync")) for event in updates]


def trl(sizes: Sizes, model: Path, scratch: Path, steps: int) -> list[float]:
    """Seconds of each step of TRL's GRPOTrainer."""
    sys.path.append(str(TRL))
    from datasets import Dataset  # pyright: ignore[reportMissingImports]
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]

    seconds: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.begun = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds.append(time.perf_counter() - self.begun)

    tokenizer = AutoTokenizer.from_pretrained(model)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question(seed, sizes.prompt)}], tokenize=False, add_generation_prompt=True
        )
        for seed in range(sizes.groups * steps)
    ]
    trainer = GRPOTrainer(
        AutoModelForCausalLM.from_pretrained(model),
        reward_funcs=lambda completions, **_: [reward(text) for text in completions],
        args=GRPOConfig(
            output_dir=str(scratch / "trl"),
            per_device_train_batch_size=sizes.groups * sizes.members,
            num_generations=sizes.members,
            max_completion_length=RESPONSE,
            max_steps=steps,
            learning_rate=1e-5,
            beta=0.0,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    trainer.train()
    return seconds


def child(side: str, sizes: Sizes, model: Path, steps: int) -> list[float]:
    """Run one side in a process of its own; return its steps without the first."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "seconds.json"
        given = json.dumps([side, vars(sizes), str(model), scratch, steps, str(out)])
        environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "2", "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(
            [sys.executable, __file__, "--child", given], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"bench_trl: the side {side!r} failed:\n{done.stderr[-2000:]}")
        seconds: list[float] = json.loads(out.read_text())
    return seconds[1:]


def compare(sizes: Sizes, rounds: int, steps: int) -> tuple[float, float]:
    """Median seconds of a step, TRL's and ours."""
    from agentr1_train.init_model import ModelShape, init_model

    taken: dict[str, list[float]] = {"trl": [], "ours": []}
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "model"
        shape = ModelShape(hidden=sizes.hidden, layers=sizes.layers, heads=4, positions=2048)
        init_model([question(seed, 100) for seed in range(50)], model, shape)
        for _ in range(rounds):
            for side, seconds in taken.items():
                seconds += child(side, sizes, model, steps)
    return statistics.median(taken["trl"]), statistics.median(taken["ours"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        side, sizes, model, scratch, steps, out = json.loads(arguments.child)
        run = {"ours": ours, "trl": trl}[side]
        Path(out).write_text(json.dumps(run(Sizes(**sizes), Path(model), Path(scratch), steps)))
        return
    if not (TRL / "trl").is_dir():
        raise SystemExit("bench_trl: TRL is not there. `make bench-train` installs it into .venvs/trl.")
    cases = [Sizes(48, 2, 4, hidden=64, layers=2)] if arguments.quick else [Sizes(256, 16, 8), Sizes(1024, 4, 8)]
    CONSOLE.print(f"{platform.machine()}, {os.cpu_count()} cores, 2 threads, float32", highlight=False)
    table = Table("a step", "TRL, s", "ours, s", "TRL / ours")
    for sizes in cases:
        theirs, mine = compare(sizes, 1 if arguments.quick else arguments.rounds, 3 if arguments.quick else 5)
        table.add_row(sizes.name, f"{theirs:.2f}", f"{mine:.2f}", f"{theirs / mine:.2f}")
    CONSOLE.print(table)


if __name__ == "__main__":
    main()
