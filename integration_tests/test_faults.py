"""Faults that strike real processes, by signals and limits: the run goes on, or stops with one line and resumes.

The page docs/faults.md is the table of all of them; here are those that need a process of their own.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from agentr1_train.init_model import ModelShape, init_model
from agentr1_train.tracking import read_events

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent

RECIPE: dict[str, Any] = {
    "updates": 3,
    "env": {"id": "training_strangers:Strangers-v0"},
    "rollout": {"groups": 2, "group_size": 4, "max_prompt_tokens": 64, "max_response_tokens": 2, "patience_s": 10.0},
    "optimizer": {"lr": 1e-3},
    "engine": {"device": "cpu", "threads": 1},
    "checkpoint": {"every": 1, "keep": 0, "export": False},
    "tracking": {"tensorboard": False, "progress": False},
}
"""Sixteen environment steps an update."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("model") / "model"
    init_model(["a", "b", "ab"] * 50, out, ModelShape(hidden=32, layers=1, heads=2, vocabulary=262, positions=128))
    return out


def write_recipe(folder: Path, model: Path, **sections: Any) -> Path:
    table = {**RECIPE, "run_dir": str(folder / "run"), "model": {"path": str(model)}}
    for name, value in sections.items():
        table[name] = table.get(name, {}) | value if isinstance(value, dict) else value
    path = folder / "recipe.toml"
    path.write_text(tomli_w.dumps(table), "utf-8")
    return path


def environment(fault: str = "") -> dict[str, str]:
    mine = {name: text for name, text in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return mine | {
        "PYTHONPATH": str(HERE),
        "FAULT": fault,
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def run(recipe: Path, *words: str, fault: str = "") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "agentr1_train", str(recipe), *words]
    return subprocess.run(command, env=environment(fault), capture_output=True, text=True, timeout=550)


def ours(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("agentr1-train: ")]


def updates(folder: Path) -> list[int]:
    return [event["step"] for event in read_events(folder / "run" / "events.jsonl") if event["kind"] == "update"]


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "run" / "checkpoints").iterdir())


def test_sigterm_finishes_the_update_writes_a_checkpoint_and_exits_with_143(model: Path, tmp_path: Path) -> None:
    """No checkpoint is due before the last update; SIGTERM comes in the rollout of the second."""
    recipe = write_recipe(tmp_path, model, checkpoint={"every": 0})
    done = run(recipe, fault="step:20:SIGTERM")
    assert done.returncode == 143, done.stderr
    assert ours(done.stderr) == [
        "agentr1-train: stopped by SIGTERM after update 2 of 3; its checkpoint is written, and --resume continues from "
        "there."
    ]
    assert "Traceback" not in done.stderr
    assert checkpoints(tmp_path) == ["step_000002"]
    done = run(recipe, "--resume")
    assert done.returncode == 0, done.stderr
    assert updates(tmp_path) == [1, 2, 3]
