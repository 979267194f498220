"""What tests of whole runs have in common: a tiny model, a recipe file beside it, the environment of a process, and the
quickstart.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from agentr1_train.config import load_recipe
from agentr1_train.init_model import ModelShape, init_model
from agentr1_train.quickstart import RECIPE

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BIN = Path(sys.executable).parent


def free_port() -> int:
    """A port for ranks to meet at, which nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_model(folder: Path) -> Path:
    out = folder / "model"
    init_model(["a", "b", "ab"] * 50, out, ModelShape(hidden=32, layers=1, heads=2, vocabulary=262, positions=128))
    return out


def write_recipe(base: Mapping[str, Any], folder: Path, model: Path, **sections: Any) -> Path:
    """Write ``base`` with these sections laid over it; the run goes to ``folder / "run"``."""
    table: dict[str, Any] = {**base, "run_dir": str(folder / "run"), "model": {"path": str(model)}}
    for name, value in sections.items():
        table[name] = table.get(name, {}) | value if isinstance(value, dict) else value
    path = folder / "recipe.toml"
    path.write_text(tomli_w.dumps(table), "utf-8")
    return path


def environment(fault: str = "", rank: str = "") -> dict[str, str]:
    """The environment of a run that meets a fault of ``training_strangers``, on one rank or on all."""
    mine = {name: text for name, text in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return mine | {
        "PYTHONPATH": str(HERE),
        "FAULT": fault,
        **({"FAULT_RANK": rank} if rank else {}),
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def run_quickstart(place: Path) -> tuple[Path, str]:
    """Run the quickstart in a folder that sees the recipes of this checkout; return its run and what it said."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "packages").symlink_to(ROOT / "packages")
    command = [sys.executable, "-m", "agentr1_train.quickstart", "--port", str(free_port())]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return place / load_recipe(ROOT / RECIPE).run_dir, done.stdout


def place_of_runs(otherwise: Path) -> Path:
    """Where runs lie that tests of several environments look at: AGENTR1_TEST_RUNS, which `make unit` sets."""
    return Path(os.environ.get("AGENTR1_TEST_RUNS", otherwise))
