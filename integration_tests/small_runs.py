"""What tests of whole runs have in common: a tiny model, a recipe file beside it, and the environment of a process."""

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from agentr1_train.init_model import ModelShape, init_model

HERE = Path(__file__).resolve().parent
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
