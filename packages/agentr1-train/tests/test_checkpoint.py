"""Checkpoints: exact when resumed, whole or not there, and refused by another run."""

import dataclasses
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from agentr1_train.checkpoint import (
    MANIFEST,
    export_policy,
    is_whole,
    latest,
    load_checkpoint,
    random_state,
    read_manifest,
    save_checkpoint,
    set_random_state,
)
from agentr1_train.config import (
    CheckpointConfig,
    EvaluationConfig,
    OptimizerConfig,
    Recipe,
    RolloutConfig,
    TrackingConfig,
)
from agentr1_train.errors import CheckpointError
from transformers import AutoModelForCausalLM, AutoTokenizer

pytestmark = pytest.mark.once

KEPT_TWO = Recipe(checkpoint=CheckpointConfig(keep=2))


@pytest.mark.parametrize("variant", ["0_fp32", "2_fp32", "2_bf16", "3_fp32"])
def test_two_ranks_resume_exactly(two_ranks: list[dict[str, Any]], variant: str) -> None:
    for seen in (result[f"resume_{variant}"] for result in two_ranks):
        assert seen["found"] == seen["folder"]
        assert seen["state"] == {"update": 2, "kl_coef": 0.1}
        first, second = seen["reports"]
        assert first == second
        assert first[0] != first[1]
        assert seen["same_weights"]
        assert seen["drawn"][0] == seen["drawn"][1]
        assert "seed was 0, is 7" in seen["refusal"]


@pytest.mark.parametrize("variant", ["0_fp32", "2_bf16", "3_fp32"])
def test_export_of_two_ranks_loads(two_ranks: list[dict[str, Any]], variant: str) -> None:
    seen = two_ranks[0][f"resume_{variant}"]
    model = AutoModelForCausalLM.from_pretrained(seen["exported"])
    weights = dict(model.named_parameters())
    assert weights.keys() == seen["weights"].keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in seen["weights"].items())
    tokenizer = AutoTokenizer.from_pretrained(seen["exported"])
    assert tokenizer.chat_template
    assert tokenizer.decode(tokenizer("the answer")["input_ids"]) == "the answer"


@pytest.mark.parametrize("stage", [0, 1])
def test_one_rank_resumes_exactly(ranks_script: Any, tiny_model_dir: Path, tmp_path: Path, stage: int) -> None:
    seen = ranks_script.resume(str(tiny_model_dir), stage, "fp32", tmp_path)
    assert seen["reports"][0] == seen["reports"][1]
    assert seen["same_weights"]


def test_another_number_of_ranks_is_refused(
    two_ranks: list[dict[str, Any]], ranks_script: Any, tiny_model_dir: Path
) -> None:
    engine, recipe = ranks_script.make_engine(str(tiny_model_dir), 2)
    before = ranks_script.weights_of(engine)
    with pytest.raises(CheckpointError, match="it has 2 ranks, this run 1"):
        load_checkpoint(Path(two_ranks[0]["resume_2_fp32"]["folder"]), {"policy": engine}, recipe)
    after = ranks_script.weights_of(engine)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_what_may_change_between_runs(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, 1, {}, {"update": 1}, KEPT_TWO)
    free = dataclasses.replace(
        KEPT_TWO,
        run_dir="elsewhere",
        updates=7,
        tracking=TrackingConfig(tensorboard=False),
        evaluation=EvaluationConfig(episodes=9),
        checkpoint=CheckpointConfig(keep=5),
    )
    assert load_checkpoint(folder, {}, free) == {"update": 1}
    other = dataclasses.replace(KEPT_TWO, rollout=RolloutConfig(group_size=3))
    with pytest.raises(CheckpointError, match=r"rollout\.group_size was 8, is 3"):
        load_checkpoint(folder, {}, other)


def test_what_a_message_asks_for_may_change_and_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_checkpoint(tmp_path, 1, {}, {"update": 1}, KEPT_TWO)
    mended = dataclasses.replace(
        KEPT_TWO,
        engine=dataclasses.replace(KEPT_TWO.engine, micro_batch_tokens=64),
        sampler=dataclasses.replace(KEPT_TWO.sampler, max_batch=2),
    )
    assert load_checkpoint(folder, {}, mended) == {"update": 1}
    said = "resuming with engine.micro_batch_tokens = 64 instead of 4096, sampler.max_batch = 2 instead of 64"
    assert said in capsys.readouterr().err


def test_a_schedule_pins_the_number_of_updates(tmp_path: Path) -> None:
    recipe = dataclasses.replace(KEPT_TWO, optimizer=OptimizerConfig(schedule="cosine"))
    folder = save_checkpoint(tmp_path, 1, {}, {}, recipe)
    with pytest.raises(CheckpointError, match="updates was 100, is 7"):
        load_checkpoint(folder, {}, dataclasses.replace(recipe, updates=7))


def test_a_model_that_was_not_saved_is_refused(ranks_script: Any, tiny_model_dir: Path, tmp_path: Path) -> None:
    engine, recipe = ranks_script.make_engine(str(tiny_model_dir), 0)
    folder = save_checkpoint(tmp_path, 1, {}, {}, recipe)
    with pytest.raises(CheckpointError, match="it holds no policy"):
        load_checkpoint(folder, {"policy": engine}, recipe)


KILLED = """
import os, signal, sys
from pathlib import Path
from agentr1_train.checkpoint import save_checkpoint
from agentr1_train.config import Recipe

class Engine:
    def __init__(self, name, deadly): self.name, self.deadly = name, deadly
    def save(self, folder):
        (folder / self.name).mkdir()
        (folder / self.name / "weights").write_bytes(bytes(1000))
        if self.deadly: os.kill(os.getpid(), signal.SIGKILL)

policy, critic = Engine("policy", False), Engine("critic", True)
save_checkpoint(Path(sys.argv[1]), 10, {"policy": policy}, {}, Recipe())
save_checkpoint(Path(sys.argv[1]), 20, {"policy": policy, "critic": critic}, {}, Recipe())
"""


def test_a_run_killed_while_it_saves_keeps_the_last_whole_one(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, timeout=240, check=False)
    assert done.returncode == -9, done.stderr
    assert (tmp_path / "checkpoints" / ".step_000020.partial" / "critic" / "weights").exists()
    assert latest(tmp_path) == tmp_path / "checkpoints" / "step_000010"
    save_checkpoint(tmp_path, 20, {}, {}, Recipe())
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step_000010", "step_000020"]


@pytest.mark.parametrize("damage", ["shorter", "missing", "manifest", "format"])
def test_damage_is_noticed(tmp_path: Path, damage: str) -> None:
    older = save_checkpoint(tmp_path, 1, {}, {}, KEPT_TWO)
    folder = save_checkpoint(tmp_path, 2, {}, {}, KEPT_TWO)
    assert latest(tmp_path) == folder
    state, manifest = folder / "state.json", folder / MANIFEST
    if damage == "shorter":
        state.write_text("")
    elif damage == "missing":
        state.unlink()
    elif damage == "manifest":
        manifest.write_text(manifest.read_text()[:-20])
    else:
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    assert not is_whole(folder)
    assert latest(tmp_path) == older
    with pytest.raises(CheckpointError, match=r"damaged: state\.json|no whole checkpoint|format 99"):
        read_manifest(folder)


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        save_checkpoint(tmp_path, step, {}, {"step": step}, KEPT_TWO)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step_000003", "step_000010"]
    save_checkpoint(tmp_path, 11, {}, {}, dataclasses.replace(KEPT_TWO, checkpoint=CheckpointConfig(keep=0)))
    assert len(list((tmp_path / "checkpoints").iterdir())) == 3


def test_the_same_step_again_replaces_it(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 3, {}, {"a": 1}, KEPT_TWO)
    folder = save_checkpoint(tmp_path, 3, {}, {"a": 2}, KEPT_TWO)
    assert load_checkpoint(folder, {}, KEPT_TWO) == {"a": 2}
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_000003"]


def test_no_checkpoint_yet(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        load_checkpoint(tmp_path / "checkpoints" / "step_000001", {}, KEPT_TWO)


def test_random_states_come_back(tmp_path: Path) -> None:
    torch.save(random_state(), tmp_path / "state.pt")

    def draw() -> list[float]:
        return [random.random(), random.gauss(0, 1), numpy.random.normal(), numpy.random.rand(), torch.randn(1).item()]

    first = draw()
    assert draw() != first
    set_random_state(torch.load(tmp_path / "state.pt", weights_only=True))
    assert draw() == first


def test_export_takes_the_place_of_the_old_one(
    ranks_script: Any, tiny_model_dir: Path, tiny_tokenizer: Any, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    out.mkdir()
    (out / "stale").touch()
    engine, _ = ranks_script.make_engine(str(tiny_model_dir), 0)
    export_policy(engine, tiny_tokenizer, out)
    assert not (out / "stale").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    weights = dict(AutoModelForCausalLM.from_pretrained(out).named_parameters())
    assert all(torch.equal(weights[name], tensor) for name, tensor in ranks_script.weights_of(engine).items())
