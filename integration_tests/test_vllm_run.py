"""Whole runs under vLLM on two ranks: the quickstart ends where it ends under ``hf``; one server samples for both.

Runs in the environment that ``make setup-vllm`` makes; the quickstart takes several minutes for each of its runs.
"""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import small_runs
from agentr1_train.config import load_recipe
from agentr1_train.engine.build import SHARED_MEMORY
from agentr1_train.init_model import ModelShape, init_model
from agentr1_train.quickstart import RECIPE
from agentr1_train.tracking import read_events, read_rollouts, rollout_path
from safetensors.torch import load_file

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(7200)]


def run(folder: Path, start: Path, sampler: str) -> list[dict[str, Any]]:
    """Train from the quickstart's supervised start and return the run's events."""
    command = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_accelerators", "2"]
    command += ["--master_port", str(small_runs.free_port())]
    command += ["--module", "agentr1_train", str(ROOT / RECIPE), "--run-dir", str(folder), "--model.path", str(start)]
    command += ["--supervised.batches", "0", "--sampler.name", sampler]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PATH": tools}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return read_events(folder / "events.jsonl")


def test_the_quickstart_ends_where_it_ends_under_transformers(tmp_path: Path) -> None:
    place = small_runs.place_of_runs(tmp_path) / "quickstart"
    reference = place / load_recipe(ROOT / RECIPE).run_dir
    if not (reference / "model" / "model.safetensors").is_file():  # else test_quickstart.py has run it just now
        reference, _ = small_runs.run_quickstart(place)
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


SMALL: dict[str, Any] = {
    "updates": 4,
    "env": {"id": "training_strangers:Strangers-v0"},
    "rollout": {"groups": 4, "group_size": 4, "max_prompt_tokens": 64, "max_response_tokens": 2, "async_level": 1},
    "sampler": {"name": "vllm_server", "kv_cache_gb": 0.1},
    "algorithm": {"entropy_coef": 0.01},  # moves the policy even where nobody is rewarded
    "optimizer": {"lr": 1e-2},
    "engine": {"device": "cpu", "threads": 1, "zero_stage": 2},
    "evaluation": {"episodes": 4, "every": 2},
    "checkpoint": {"every": 0, "export": False},
    "tracking": {"tensorboard": False, "progress": False},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads as wide as vLLM's CPU kernels ask for (32)."""
    folder = tmp_path_factory.mktemp("small") / "model"
    shape = ModelShape(hidden=64, layers=1, heads=2, vocabulary=262, positions=128)
    init_model(["a", "b", "ab"] * 50, folder, shape)
    return folder


def launch(recipe: Path, *words: str, fault: str = "", rank: str = "") -> "subprocess.CompletedProcess[str]":
    """Two CPU ranks under the real launcher."""
    command = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_accelerators", "2"]
    command += ["--master_port", str(small_runs.free_port()), "--module", "agentr1_train", str(recipe), *words]
    environment = small_runs.environment(fault, rank)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)


def test_one_server_samples_ahead_for_two_ranks(model: Path, tmp_path: Path) -> None:
    """Weights are handed over in the rollouts' thread of each rank, while the other thread trains."""
    recipe = small_runs.write_recipe(SMALL, tmp_path, model)
    done = launch(recipe)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    events = [event for event in read_events(tmp_path / "run" / "events.jsonl") if event["kind"] == "update"]
    assert [event["rollout/staleness_max"] for event in events] == [0, 1, 1, 1]
    assert events[0]["mismatch/kl"] < 1e-6 < events[-1]["mismatch/kl"]
    for update, version in enumerate((0, 0, 1, 2)):
        played = read_rollouts(rollout_path(tmp_path / "run", update + 1))
        assert len(played) == 16
        assert {step.policy_version for item in played for step in item.steps} == {version}


def engines() -> set[int]:
    """Processes that write into the log of a server which a run started."""
    found = set()
    for place in Path("/proc").glob("[0-9]*/fd/1"):
        with contextlib.suppress(OSError):
            if "agentr1-vllm-" in os.readlink(place):
                found.add(int(place.parts[2]))
    return found


def test_a_server_killed_in_a_rollout_ends_the_run_in_one_line_a_rank_and_it_resumes(
    model: Path, tmp_path: Path
) -> None:
    """SIGKILL of the server in the rollout of the second update: each rank has played five eighths of its steps."""
    changes: dict[str, Any] = {"updates": 3, "rollout": {"async_level": 0}, "evaluation": {"episodes": 0}}
    recipe = small_runs.write_recipe(SMALL, tmp_path, model, checkpoint={"every": 1}, **changes)
    before, memory = engines(), set(SHARED_MEMORY.glob("psm_*"))
    done = launch(recipe, fault="step:20:SERVER", rank="0")
    deadline = time.monotonic() + 30
    while not engines() <= before or set(SHARED_MEMORY.glob("psm_*")) - memory:
        assert time.monotonic() < deadline, "the engine of the killed server, or its memory, outlived the run"
        time.sleep(0.1)
    assert done.returncode not in (0, 143), done.stderr[-3000:]
    said = [line for line in done.stderr.splitlines() if line.startswith("agentr1-train: ")]
    first, *others = [line for line in said if "[rank 1]" not in line] + [line for line in said if "[rank 1]" in line]
    assert first == (
        "agentr1-train: vLLM's server ended with exit code -9; --resume starts another and continues from the last "
        "checkpoint."
    ), done.stderr[-3000:]
    assert len(others) <= 1
    assert all("--resume continues from the last checkpoint." in line for line in others)
    assert "Traceback" not in done.stderr
    folder = tmp_path / "run"
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step_000001"]
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(model) in _read(path)]
    done = launch(recipe, "--resume")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    events = [event for event in read_events(folder / "events.jsonl") if event["kind"] == "update"]
    assert [event["step"] for event in events] == [1, 2, 3]
    assert max(event["mismatch/kl"] for event in events) < 1e-5  # the new server has the checkpoint's weights


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
