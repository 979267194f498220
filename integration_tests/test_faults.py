"""Faults that strike real processes, by signals and limits: the run goes on, or stops with one line and resumes.

The page docs/faults.md is the table of all of them; here are those that need a process of their own.
"""

import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import small_runs
from agentr1_train.config import recipe_from_dict
from agentr1_train.init_model import ModelShape, init_model
from agentr1_train.tracking import read_events, read_rollouts, rollout_path
from agentr1_train.trainer import train
from small_runs import environment, free_port, make_model

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
pytestmark = pytest.mark.timeout(1800)  # each starts several processes in turn

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
    return make_model(tmp_path_factory.mktemp("model"))


write_recipe = partial(small_runs.write_recipe, RECIPE)


def run(recipe: Path, *words: str, fault: str = "") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "agentr1_train", str(recipe), *words]
    return subprocess.run(command, env=environment(fault), capture_output=True, text=True, timeout=550)


def launch(recipe: Path, *words: str, fault: str = "", rank: str = "") -> "subprocess.CompletedProcess[str]":
    """Two CPU ranks under the real launcher."""
    command = [BIN / "deepspeed", "--num_accelerators", 2, "--master_port", free_port(), "--module", "agentr1_train"]
    return subprocess.run(
        [str(word) for word in (*command, recipe, *words)],
        env=environment(fault, rank),
        capture_output=True,
        text=True,
        timeout=550,
    )


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


DISK = """
set -e
mount -t tmpfs -o size=$1k tmpfs "$2"
shift
place=$1
shift
"$@" 2> "$place.first" || echo $? > "$place.code"
ls -A "$place/run/checkpoints" > "$place.left"
mount -o remount,size=100m "$place"
"$@" --resume
cp "$place/run/events.jsonl" "$place.events"
"""


def _may_mount() -> bool:
    found = shutil.which("unshare")
    probe = [found or "", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return found is not None and subprocess.run(probe, capture_output=True).returncode == 0


def test_a_full_disk_is_one_line_and_with_room_again_it_resumes(model: Path, tmp_path: Path) -> None:
    """A file system of the kernel's own with room for one checkpoint and not for two, in a mount namespace."""
    if not _may_mount():
        assert os.environ.get("CI") != "true", "no mount namespace"
        pytest.skip("this machine lets nobody mount")
    place = tmp_path / "disk"
    place.mkdir()
    recipe = write_recipe(tmp_path, model, run_dir=str(place / "run"))
    probe = write_recipe(tmp_path, model, run_dir=str(tmp_path / "probe"), updates=1)
    assert run(probe).returncode == 0
    size = sum(path.stat().st_size for path in (tmp_path / "probe").rglob("*") if path.is_file()) // 1024
    recipe = write_recipe(tmp_path, model, run_dir=str(place / "run"))
    command = [sys.executable, "-m", "agentr1_train", str(recipe)]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", DISK, "sh", str(int(size * 1.6)), str(place), *command],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=550,
    )
    first = Path(f"{place}.first").read_text()
    assert done.returncode == 0, done.stderr + first
    assert Path(f"{place}.code").read_text().strip() == "2", first
    (line,) = ours(first)
    assert line.startswith("agentr1-train: the disk is full: ")
    assert line.endswith("--resume continues from the last whole checkpoint.")
    assert Path(f"{place}.left").read_text().split() == ["step_000001"]
    events = [event for event in read_events(Path(f"{place}.events")) if event["kind"] == "update"]
    assert [event["step"] for event in events] == [1, 2, 3]


def test_a_micro_batch_that_does_not_fit_ends_the_run_in_one_line_and_smaller_ones_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the second update the process may take 96 MiB more; its one micro-batch wants several times that.

    What the first update freed has gone back to the system, whatever the allocator would rather keep.
    """
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "0")
    shape = ModelShape(hidden=256, layers=4, heads=4, vocabulary=262, positions=128)
    init_model(["a", "b", "ab"] * 50, tmp_path / "model", shape)
    sizes = {"packing": "rows", "micro_batch_tokens": 100_000}
    recipe = write_recipe(tmp_path, tmp_path / "model", updates=2, rollout={"groups": 32}, engine=sizes)
    done = run(recipe, fault="forward_backward:2:RLIMIT_AS")
    assert done.returncode == 2, done.stderr
    (line,) = ours(done.stderr)
    assert line.startswith("agentr1-train: micro-batch 0 of the policy (256 rows, ")
    assert "Traceback" not in done.stderr
    assert checkpoints(tmp_path) == ["step_000001"]
    done = run(recipe, "--resume", "--engine.micro-batch-tokens", "64")
    assert done.returncode == 0, done.stderr
    assert "resuming with engine.micro_batch_tokens = 64 instead of 100000" in done.stderr
    assert updates(tmp_path) == [1, 2]


def test_a_killed_rank_ends_the_others_at_once_and_the_run_resumes(model: Path, tmp_path: Path) -> None:
    """SIGKILL of rank 1 between backward and step of the second update, while rank 0 waits for it."""
    recipe = write_recipe(tmp_path, model, engine={"zero_stage": 2})
    done = launch(recipe, fault="optim_step:2:SIGKILL", rank="1")
    assert done.returncode not in (0, 143)
    (line,) = ours(done.stderr)
    # Rank 0 tells of the lost connection or, where the launcher ends it sooner, names itself.
    assert line.replace("[rank 0] ", "") == (
        "agentr1-train: another rank ended; --resume continues from the last checkpoint."
    ), done.stderr
    assert checkpoints(tmp_path) == ["step_000001"]
    done = launch(recipe, "--resume")
    assert done.returncode == 0, done.stderr[-3000:]
    assert updates(tmp_path) == [1, 2, 3]


def test_a_tool_server_that_dies_is_feedback_and_the_run_goes_on(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL of the tool server at the beginning of the second update."""
    monkeypatch.syspath_prepend(HERE)
    import training_strangers

    program = [BIN / "agentr1-tools", "serve", "--tools", "calculator", "--port", "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().partition(" at ")[2].split()[0]
        monkeypatch.setattr(training_strangers, "SERVER", server.pid)
        table = {
            **RECIPE,
            "updates": 2,
            "run_dir": str(tmp_path / "run"),
            "model": {"path": str(model)},
            "env": {
                "id": "agentr1_envs:agentr1/ToolEnv-v0",
                "kwargs": {
                    "tools": [{"name": "remote", "url": url, "tool": "calculator"}],
                    "tasks": [{"question": "What is 6 times 7?", "answer": "42"}],
                },
            },
            "sampler": {"name": "scripted", "script": "training_strangers:calls"},
            "rollout": {**RECIPE["rollout"], "max_prompt_tokens": 8000, "max_response_tokens": 200},
        }
        folder = train(recipe_from_dict(table))
        assert server.wait(timeout=10) == -signal.SIGKILL
    texts = [
        item.final_observation + " ".join(step.observation for step in item.steps)
        for update in (1, 2)
        for item in read_rollouts(rollout_path(folder, update))
    ]
    assert ["NETWORK_ERROR" in text for text in texts] == [False] * 8 + [True] * 8
    events = [event for event in read_events(folder / "events.jsonl") if event["kind"] == "update"]
    assert [event["rollout/errors"] for event in events] == [0, 0]


@pytest.mark.parametrize(
    ("scale", "what"),
    [("1e30", "the gradient of the policy is not finite though its loss was."), ("1e39", "the loss of the policy is ")],
)
def test_a_gradient_or_a_loss_that_is_not_finite_ends_the_run_in_one_line_and_it_resumes(
    scale: str, what: str, model: Path, tmp_path: Path
) -> None:
    """From the second update on the environment's rewards are so large that float32 does not hold what they make.

    1e30 fits, as its advantage and its loss do, and the square of its gradient does not; 1e39 does not fit.
    """
    recipe = write_recipe(tmp_path, model, algorithm={"preset": "dr_grpo"})
    done = run(recipe, fault=f"reward:17:{scale}")
    assert done.returncode == 2, done.stderr
    (line,) = ours(done.stderr)
    assert line.startswith(f"agentr1-train: {what}")
    assert "No weight was changed. Lower the learning rate" in line
    assert "Traceback" not in done.stderr
    assert updates(tmp_path) == [1]
    assert checkpoints(tmp_path) == ["step_000001"]
    done = run(recipe, "--resume")
    assert done.returncode == 0, done.stderr
    assert updates(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("lr", ["1e10", "1e20"])
def test_weights_that_nobody_could_resume_from_make_no_checkpoint(lr: str, model: Path, tmp_path: Path) -> None:
    """Under the smaller rate log-probabilities are not finite after a step, under the larger gradients alone."""
    recipe = write_recipe(tmp_path, model, algorithm={"entropy_coef": 0.01})  # moves it even where nobody is rewarded
    assert run(recipe, "--updates", "1").returncode == 0
    done = run(recipe, "--resume", "--optimizer.lr", lr)
    assert done.returncode == 2, done.stderr
    *said, line = ours(done.stderr)
    assert len(said) == 1  # with which rate it resumes
    assert line.startswith("agentr1-train: the weights of the policy have grown until what they compute is not finite")
    assert "Traceback" not in done.stderr
    assert checkpoints(tmp_path) == ["step_000001"]
    done = run(recipe, "--resume")
    assert done.returncode == 0, done.stderr
    assert updates(tmp_path) == [1, 2, 3]
