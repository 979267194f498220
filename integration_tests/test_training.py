"""Training for real: the module in processes of its own, killed and resumed, and on two ranks under the launcher."""

import importlib.util
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import small_runs
import torch
from agentr1_train.config import load_recipe
from agentr1_train.tracking import read_events, read_rollouts
from agentr1_train.trainer import train
from small_runs import environment, free_port, make_model
from transformers import AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.timeout(1800)  # some start half a dozen processes in turn

RECIPE: dict[str, Any] = {
    "updates": 4,
    "env": {"id": "training_strangers:Strangers-v0"},
    "rollout": {"groups": 2, "group_size": 4, "max_prompt_tokens": 64, "max_response_tokens": 2, "patience_s": 10.0},
    "algorithm": {"preset": "ppo", "kl": "loss"},
    "optimizer": {"lr": 1e-3},
    "engine": {"device": "cpu", "threads": 1},
    "evaluation": {"episodes": 2, "every": 2},
    "checkpoint": {"every": 1, "keep": 0},
    "tracking": {"tensorboard": False},
}
"""Policy, critic and reference; each update is two optimizer steps, sixteen environment steps and a checkpoint."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


write_recipe = partial(small_runs.write_recipe, RECIPE)


def start(recipe: Path, *words: str, fault: str = "") -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "agentr1_train", str(recipe), *words]
    return subprocess.Popen(command, env=environment(fault), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def untimed(folder: Path) -> list[dict[str, Any]]:
    events = read_events(folder / "events.jsonl")
    return [{name: value for name, value in event.items() if not name.startswith("time/")} for event in events]


def numbers(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "kind"}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(folder / "model").state_dict()


def stopped(process: "subprocess.Popen[str]") -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_interrupted_and_killed_and_resumed_it_repeats_the_uninterrupted_run(model: Path, tmp_path: Path) -> None:
    """Ctrl-C in a rollout; SIGKILL between backward and step; SIGKILL inside a checkpoint; then to the end."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole = write_recipe(tmp_path / "whole", model)
    cut = write_recipe(tmp_path / "cut", model)
    run = tmp_path / "cut" / "run"

    with start(whole, fault="step:30:SIGSTOP") as process:  # in update 2: what is there is read by this process
        deadline = time.monotonic() + 300
        while not stopped(process) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert stopped(process)
        read = read_rollouts(tmp_path / "whole" / "run" / "rollouts" / "step_000001.parquet")
        assert [event["kind"] for event in untimed(tmp_path / "whole" / "run")] == ["evaluation", "update"]
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert len(read) == 8
    assert "update 4/4" in out

    with start(cut, fault="step:30:SIGINT") as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "agentr1-train: interrupted; --resume continues from the last checkpoint."
    assert "Traceback" not in err
    assert checkpoints(run) == ["step_000001"]

    with start(cut, "--resume", fault="optim_step:3:SIGKILL") as process:
        _, err = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, err
    assert checkpoints(run) == ["step_000001", "step_000002"]

    with start(cut, "--resume", fault="seal:1:SIGKILL") as process:
        _, err = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, err
    assert checkpoints(run) == [".step_000003.partial", "step_000001", "step_000002"]
    assert untimed(run)[-1]["step"] == 3  # the event of an update whose checkpoint is not whole

    with start(cut, "--resume") as process:
        _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert untimed(run) == untimed(tmp_path / "whole" / "run")
    assert checkpoints(run) == checkpoints(tmp_path / "whole" / "run")
    ours, theirs = weights(run), weights(tmp_path / "whole" / "run")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def launch(*words: Any, timeout: float = 900) -> "subprocess.CompletedProcess[str]":
    """Run ``deepspeed`` on two CPU ranks."""
    command = [Path(sys.executable).parent / "deepspeed", "--num_accelerators", 2, "--master_port", free_port(), *words]
    return subprocess.run(
        [str(word) for word in command], env=environment(), capture_output=True, text=True, timeout=timeout
    )


def test_one_rank_and_two_and_every_zero_stage_train_alike(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripted rollouts, three updates at lr 1e-5: equal losses, equal weights to 1e-4."""
    recipe = write_recipe(
        tmp_path,
        model,
        updates=3,
        sampler={"name": "scripted", "script": "training_strangers:answers"},
        optimizer={"lr": 1e-5},
        evaluation={"episodes": 0},
        checkpoint={"every": 0},
    )
    done = launch("--no_local_rank", HERE / "training_ranks.py", recipe, tmp_path / "two")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    monkeypatch.syspath_prepend(HERE)
    spec = importlib.util.spec_from_file_location("training_ranks", HERE / "training_ranks.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    one = script.train_stages(load_recipe(recipe), tmp_path / "one")

    reference, expected = untimed(one[0]), weights(one[0])
    before = AutoModelForCausalLM.from_pretrained(model).state_dict()
    assert max((expected[name] - before[name]).abs().max() for name in before) > 1e-5
    assert all(event["policy/grad_norm"] > 0 and event["rollout/return_std"] > 0 for event in reference)
    for folder in (*one[1:], *(tmp_path / "two" / path.name for path in one)):
        for event, wanted in zip(untimed(folder), reference, strict=True):
            assert numbers(event) == pytest.approx(numbers(wanted), rel=1e-4, abs=1e-6), folder
        for name, tensor in weights(folder).items():
            torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-4)


def test_rollouts_ahead_on_two_ranks_at_every_zero_stage(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real sampler at level 2: flat groups are exchanged between the ranks' rollout threads while updates run."""
    recipe = write_recipe(
        tmp_path,
        model,
        updates=4,
        rollout={"async_level": 2, "groups": 4},
        algorithm={"preset": "dapo", "resample_rounds": 2, "kl": "none"},
        optimizer={"lr": 1e-5},
        checkpoint={"every": 2},
    )
    done = launch("--no_local_rank", HERE / "training_ranks.py", recipe, tmp_path / "two")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    monkeypatch.syspath_prepend(HERE)
    alone = untimed(train(replace(load_recipe(recipe), run_dir=str(tmp_path / "one"))))
    played = [event for event in alone if event["kind"] == "update"]
    assert [event["rollout/staleness_mean"] for event in played] == [0, 1, 2, 2]
    assert max(event["rollout/resampled_groups"] for event in played) > 0
    for stage in range(4):
        folder = tmp_path / "two" / f"zero_{stage}"
        for event, wanted in zip(untimed(folder), alone, strict=True):
            assert numbers(event) == pytest.approx(numbers(wanted), rel=1e-3, abs=1e-5), folder
        for update, version in enumerate((0, 0, 0, 1)):
            steps = [
                step
                for item in read_rollouts(folder / "rollouts" / f"step_{update + 1:06d}.parquet")
                for step in item.steps
            ]
            assert {step.policy_version for step in steps} == {version}


def test_ctrl_c_while_rollouts_run_ahead_and_resumed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write_recipe(tmp_path, model, rollout={"async_level": 1})
    with start(recipe, fault="step:70:SIGINT") as process:
        _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert 0 < len(untimed(tmp_path / "run")) < 7
    monkeypatch.syspath_prepend(HERE)
    train(load_recipe(recipe), resume=True)
    whole = train(replace(load_recipe(recipe), run_dir=str(tmp_path / "whole")))
    assert untimed(tmp_path / "run") == untimed(whole)


def test_the_module_runs_under_the_launcher_and_refuses_with_its_exit_code(model: Path, tmp_path: Path) -> None:
    """Two ranks, ZeRO-2, the real sampler: the first update sees what one rank sees."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    two = write_recipe(tmp_path / "two", model, updates=2)
    with start(write_recipe(tmp_path / "one", model, updates=2)) as process:
        _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    done = launch("--module", "agentr1_train", two, "--engine.zero-stage", "2")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    alone, dealt = untimed(tmp_path / "one" / "run"), untimed(tmp_path / "two" / "run")
    assert [(event["kind"], event["step"]) for event in alone] == [(event["kind"], event["step"]) for event in dealt]
    assert numbers(dealt[1]) == pytest.approx(numbers(alone[1]), rel=1e-3, abs=1e-5)
    files = sorted((tmp_path / "two" / "run" / "rollouts").iterdir())
    assert [pq.read_table(path)["group"].unique().to_pylist() for path in files] == [[0, 1], [0, 1]]
    assert (tmp_path / "two" / "run" / "curve.png").is_file()
    assert weights(tmp_path / "two" / "run")

    again = launch("--module", "agentr1_train", two, "--engine.zero-stage", "2")
    assert again.returncode == 2
    assert "already holds a run. --resume continues it" in again.stderr
