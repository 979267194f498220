"""The quickstart under ``sampler = "vllm"`` ends where it ends under ``hf``: two ranks, an engine in each, one recipe.

Runs in the environment that ``make setup-vllm`` makes, several minutes for each run.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agentr1_train.config import load_recipe
from agentr1_train.quickstart import RECIPE
from agentr1_train.tracking import read_events
from safetensors.torch import load_file

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(7200)]


def run(folder: Path, start: Path, sampler: str) -> list[dict[str, Any]]:
    """Train from the quickstart's supervised start and return the run's events."""
    command = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_accelerators", "2", "--master_port", "29613"]
    command += ["--module", "agentr1_train", str(ROOT / RECIPE), "--run-dir", str(folder), "--model.path", str(start)]
    command += ["--supervised.batches", "0", "--sampler.name", sampler]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PATH": tools}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return read_events(folder / "events.jsonl")


def test_the_quickstart_ends_where_it_ends_under_transformers(tmp_path: Path) -> None:
    (tmp_path / "packages").symlink_to(ROOT / "packages")
    command = [sys.executable, "-m", "agentr1_train.quickstart", "--port", "29613"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    reference = tmp_path / load_recipe(ROOT / RECIPE).run_dir
    start = reference / "supervised" / "model"
    events = run(tmp_path / "vllm", start, "vllm")
    (*_, expected), (first, *_, last) = (
        [event for event in some if event["kind"] == "evaluation"]
        for some in (read_events(reference / "events.jsonl"), events)
    )
    assert abs(last["eval/success"] - expected["eval/success"]) <= 0.1
    assert last["eval/success"] > first["eval/success"]
    # The policy moved, and in every update what vLLM sampled from was the policy: so the weights inside vLLM moved too.
    old, new = load_file(start / "model.safetensors"), load_file(tmp_path / "vllm" / "model" / "model.safetensors")
    assert old.keys() == new.keys()
    assert all(float((new[name] - old[name]).abs().max()) > 1e-3 for name in old)
    assert max(event["mismatch/kl"] for event in events if event["kind"] == "update") < 1e-5
