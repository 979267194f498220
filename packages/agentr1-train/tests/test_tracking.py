"""What a run writes: events that survive a kill, rollouts that are never half there."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from agentr1_train import tracking
from agentr1_train.config import TrackingConfig
from agentr1_train.errors import CheckpointError, ConfigError, MissingFileError
from agentr1_train.tracking import Mark, Tracker, read_events, read_rollouts, write_rollouts
from agentr1_train.trajectory import Step, Trajectory

QUIET = TrackingConfig(tensorboard=False, progress=False)


def untimed(events: list[dict]) -> list[dict]:
    return [{name: value for name, value in event.items() if not name.startswith("time/")} for event in events]


def test_events_are_one_object_a_line_and_there_at_once(tmp_path: Path):
    with Tracker(tmp_path, QUIET, total=2) as tracker:
        tracker.log("update", 1, {"policy/loss": 0.1, "rollout/errors": 3, "note": "größer"})
        lines = (tmp_path / "events.jsonl").read_text("utf-8").splitlines()
        assert len(lines) == 1
        event = json.loads(lines[0])
        assert event.pop("time/elapsed") >= 0
        assert event == {"kind": "update", "step": 1, "policy/loss": 0.1, "rollout/errors": 3, "note": "größer"}


def test_numbers_are_written_exactly_and_what_is_not_finite_as_null(tmp_path: Path):
    with Tracker(tmp_path, QUIET, total=1) as tracker:
        tracker.log("update", 1, {"a": 0.1 + 0.2, "b": torch.tensor(2.5), "c": math.nan, "d": math.inf})
    (event,) = untimed(read_events(tmp_path / "events.jsonl"))
    assert event == {"kind": "update", "step": 1, "a": 0.1 + 0.2, "b": 2.5, "c": None, "d": None}


def test_a_killed_line_is_left_out_and_a_broken_one_named(tmp_path: Path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"kind": "update", "step": 1}\n{"kind": "upd')
    assert read_events(path) == [{"kind": "update", "step": 1}]
    path.write_bytes(b'{"kind": "update", "step": 1}\n{"kind": "upd\n')
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        read_events(path)
    with pytest.raises(MissingFileError, match="no events at"):
        read_events(tmp_path / "none.jsonl")


def test_resuming_cuts_back_to_the_mark_and_goes_on(tmp_path: Path):
    with Tracker(tmp_path / "whole", QUIET, total=3) as tracker:
        for step in (1, 2, 3):
            tracker.log("update", step, {"policy/loss": step / 7})
    with Tracker(tmp_path / "killed", QUIET, total=3) as tracker:
        tracker.log("update", 1, {"policy/loss": 1 / 7})
        mark = tracker.mark(1)
        tracker.log("update", 2, {"policy/loss": 2 / 7})
    path = tmp_path / "killed" / "events.jsonl"
    with path.open("ab") as file:
        file.write(b'{"kind": "upda')
    with Tracker(tmp_path / "killed", QUIET, total=3, resume=mark) as tracker:
        assert tracker.mark(1) == mark
        for step in (2, 3):
            tracker.log("update", step, {"policy/loss": step / 7})
    assert untimed(read_events(path)) == untimed(read_events(tmp_path / "whole" / "events.jsonl"))


def test_another_runs_events_are_not_overwritten_nor_resumed(tmp_path: Path):
    with Tracker(tmp_path, QUIET, total=1) as tracker:
        tracker.log("update", 1, {})
    before = (tmp_path / "events.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="already holds a run"):
        Tracker(tmp_path, QUIET, total=1)
    with pytest.raises(CheckpointError, match="another run's file"):
        Tracker(tmp_path, QUIET, total=1, resume=Mark(10_000, 1))
    with pytest.raises(CheckpointError, match="no line that ends at byte 5"):
        Tracker(tmp_path, QUIET, total=1, resume=Mark(5, 1))
    assert (tmp_path / "events.jsonl").read_bytes() == before


def test_a_run_without_events_resumes_at_the_start(tmp_path: Path):
    with Tracker(tmp_path, QUIET, total=1, resume=Mark(0, 0)) as tracker:
        assert tracker.mark(0) == Mark(0, 0)


def test_tensorboard_gets_the_numbers(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Tracker(tmp_path, TrackingConfig(progress=False), total=2) as tracker:
        tracker.log("update", 1, {"policy/loss": 0.5, "note": "text is for the events only"})
        tracker.log("update", 2, {"policy/loss": 0.25, "policy/grad_norm": math.nan})
    reader = EventAccumulator(str(tmp_path / "tensorboard"))
    reader.Reload()
    assert [(event.step, event.value) for event in reader.Scalars("policy/loss")] == [(1, 0.5), (2, 0.25)]
    assert set(reader.Tags()["scalars"]) == {"policy/loss", "time/elapsed"}


def test_tensorboard_forgets_what_a_resumed_run_does_again(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = TrackingConfig(progress=False)
    with Tracker(tmp_path, config, total=3) as tracker:
        tracker.log("update", 1, {"policy/loss": 0.5})
        mark = tracker.mark(1)
        tracker.log("update", 2, {"policy/loss": 0.25})
    with Tracker(tmp_path, config, total=3, resume=mark) as tracker:
        tracker.log("update", 2, {"policy/loss": 0.125})
    reader = EventAccumulator(str(tmp_path / "tensorboard"))
    reader.Reload()
    assert [(event.step, event.value) for event in reader.Scalars("policy/loss")] == [(1, 0.5), (2, 0.125)]


def test_wandb_that_is_not_installed_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"pip install 'agentr1-train\[wandb\]'"):
        Tracker(tmp_path / "run", replace(QUIET, wandb_project="p"), total=1)
    assert not (tmp_path / "run").exists()


def test_wandb_offline_records_the_run_and_resumes_its_id(tmp_path: Path):
    """In a process of its own: W&B leaves threads and hooks behind."""
    pytest.importorskip("wandb", reason="the extra agentr1-train[wandb] is not installed")
    script = """
import sys; from pathlib import Path
from agentr1_train.config import TrackingConfig
from agentr1_train.tracking import Mark, Tracker
config = TrackingConfig(tensorboard=False, progress=False, wandb_project="p")
run_dir = Path(sys.argv[1])
with Tracker(run_dir, config, total=2, recipe={"seed": 3}) as tracker:
    tracker.log("update", 1, {"policy/loss": 0.5})
    mark = tracker.mark(1)
first = (run_dir / "wandb_id").read_text()
with Tracker(run_dir, config, total=2, resume=mark) as tracker:
    tracker.log("update", 2, {"policy/loss": 0.25})
assert (run_dir / "wandb_id").read_text() == first
print("ids", first)
"""
    environment = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    identity = done.stdout.split()[-1]
    records = list((tmp_path / "run" / "wandb").glob(f"offline-run-*-{identity}/run-{identity}.wandb"))
    assert records
    assert any(b"policy/loss" in record.read_bytes() for record in records)


def test_progress_without_a_terminal_is_a_line_an_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with Tracker(tmp_path, TrackingConfig(tensorboard=False), total=9) as tracker:
        tracker.log("supervised", 4, {"supervised/loss": 1.5})
        tracker.log("update", 2, {"rollout/success": 0.25, "policy/kl_old": 0.001234})
    assert capsys.readouterr().out.splitlines() == ["supervised 4  loss 1.5", "update 2/9  success 0.25  kl 0.00123"]


def test_shown_metrics_are_in_the_glossary():
    from agentr1_train.metrics import describe

    assert [name for name in tracking.SHOWN if describe(name) is None] == []


def steps(*lengths: int) -> tuple[Step, ...]:
    return tuple(
        Step(
            prompt_ids=tuple(range(index + 1)),
            response_ids=tuple(range(length)),
            response_logprobs=(-1 / 3,) * length,
            observation=f"seen {index} ☃",
            action="said\n",
            reward=0.1 * index,
            terminated=index == len(lengths) - 1,
            truncated=False,
            finish_reason="stop" if length else "prompt_too_long",
            state_key="k",
            reward_parts={"task": 0.1, "env": 0.0} if index else {},
            policy_version=7,
            sample_s=0.25,
            env_s=0.125,
        )
        for index, length in enumerate(lengths)
    )


TRAJECTORIES = [
    Trajectory(steps(2, 0, 3), "env", "t1", 5, 0, 0, True, "terminated", "the end", metrics={"em": 1.0}),
    Trajectory(steps(1), "env", "t1", 5, 0, 1, False, "max_steps", "cut", final_prompt_ids=(1, 2, 3)),
    Trajectory((), "env", "t2", 6, 1, 0, False, "error", "", error="reset: TimeoutError: 60 s"),
]


def test_rollouts_come_back_equal(tmp_path: Path):
    path = tracking.rollout_path(tmp_path, 10)
    assert path == tmp_path / "rollouts" / "step_000010.parquet"
    write_rollouts(path, TRAJECTORIES, {(0, 0): (1.0, -1.0, 0.5)})
    assert read_rollouts(path) == TRAJECTORIES
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    table = pq.read_table(path, columns=["group", "member", "step", "advantage"]).to_pydict()
    assert table["step"] == [0, 1, 2, 0, None]
    assert table["advantage"] == [1.0, -1.0, 0.5, None, None]


def test_another_process_reads_whole_files_while_the_run_rewrites_them(tmp_path: Path):
    path = tmp_path / "step.parquet"
    write_rollouts(path, TRAJECTORIES)
    script = """
import sys; from pathlib import Path
from agentr1_train.tracking import read_rollouts
print("ready", flush=True)
print({len(read_rollouts(Path(sys.argv[1]))) for _ in range(40)})
"""
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        while reader.poll() is None:
            write_rollouts(path, TRAJECTORIES)
        assert reader.stdout.read() == "{3}\n"


def test_events_survive_a_kill(tmp_path: Path):
    script = """
import os, signal, sys; from pathlib import Path
from agentr1_train.config import TrackingConfig
from agentr1_train.tracking import Tracker
tracker = Tracker(Path(sys.argv[1]), TrackingConfig(tensorboard=False, progress=False), total=9)
for step in range(1, 4):
    tracker.log("update", step, {"policy/loss": step / 7})
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=120)
    assert done.returncode == -9
    events = read_events(tmp_path / "events.jsonl")
    assert [event["policy/loss"] for event in events] == [1 / 7, 2 / 7, 3 / 7]


def test_an_empty_rollout_is_a_file_without_rows(tmp_path: Path):
    write_rollouts(tmp_path / "none.parquet", [])
    assert read_rollouts(tmp_path / "none.parquet") == []


def test_trajectories_of_one_name_stay_apart(tmp_path: Path):
    write_rollouts(tmp_path / "twice.parquet", [TRAJECTORIES[0], TRAJECTORIES[0]])
    assert read_rollouts(tmp_path / "twice.parquet") == [TRAJECTORIES[0], TRAJECTORIES[0]]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "step.parquet"
    write_rollouts(path, TRAJECTORIES)

    def half(table: pa.Table, where: Path, **_: str) -> None:
        where.write_bytes(b"PAR1")
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", half)
    with pytest.raises(OSError, match="disk full"):
        write_rollouts(path, [])
    assert read_rollouts(path) == TRAJECTORIES
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_files_that_are_not_rollouts_are_named(tmp_path: Path):
    with pytest.raises(MissingFileError, match="no rollouts at"):
        read_rollouts(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(ConfigError, match="is not a parquet file"):
        read_rollouts(tmp_path / "text.parquet")
    pq.write_table(pa.table({"group": [1]}), tmp_path / "other.parquet")
    with pytest.raises(ConfigError, match="lacks the columns member, step"):
        read_rollouts(tmp_path / "other.parquet")
