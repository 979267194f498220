"""The loop: what a run writes, how it resumes, what it refuses, and what failures in an environment leave in it."""

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from agentr1_train.checkpoint import latest
from agentr1_train.config import Recipe, load_recipe, recipe_from_dict
from agentr1_train.errors import (
    CheckpointError,
    ConfigError,
)
from agentr1_train.evaluate import EvaluationRow
from agentr1_train.metrics import describe
from agentr1_train.rollout import group_seed
from agentr1_train.tracking import read_events, read_rollouts, rollout_path
from agentr1_train.trainer import evaluate_only, open_run, supervised_only, train
from transformers import AutoModelForCausalLM, AutoTokenizer

Make = Callable[..., dict[str, Any]]

FULL = {
    "updates": 3,
    "algorithm": {"preset": "ppo", "kl": "loss"},
    "env": {"id": "symbol_env:ShownSymbol-v0"},
    "supervised": {"batches": 2, "batch_size": 4},
    "evaluation": {"episodes": 4, "every": 2},
    "tracking": {"tensorboard": True},
    "checkpoint": {"every": 2},
}
"""A recipe in which everything happens: warm start, critic, reference, evaluation, checkpoints."""


def untimed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in event.items() if not key.startswith("time/")} for event in events]


def events_of(folder: Path) -> list[dict[str, Any]]:
    return untimed(read_events(folder / "events.jsonl"))


def updates_of(folder: Path) -> list[dict[str, Any]]:
    return [event for event in events_of(folder) if event["kind"] == "update"]


@pytest.fixture(scope="module")
def full_run(symbol_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of ``FULL``; tests only read it, or copy it."""
    make = _maker(symbol_model_dir, tmp_path_factory.mktemp("full") / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent)
        return train(recipe_from_dict(make(**FULL)))


def _maker(model: Path, folder: Path) -> Make:
    def make(**sections: Any) -> dict[str, Any]:
        table: dict[str, Any] = {
            "run_dir": str(folder),
            "model": {"path": str(model)},
            "rollout": {
                "groups": 2,
                "group_size": 4,
                "max_prompt_tokens": 16,
                "max_response_tokens": 1,
                "patience_s": 10.0,
            },
            "optimizer": {"lr": 1e-2},
            "engine": {"device": "cpu", "threads": 1},
            "tracking": {"progress": False},
        }
        return {**table, **{k: table.get(k, {}) | v if isinstance(v, dict) else v for k, v in sections.items()}}

    return make


def test_events_come_in_the_order_of_what_happened(full_run: Path) -> None:
    assert [(event["kind"], event["step"]) for event in events_of(full_run)] == [
        ("supervised", 1),
        ("supervised", 2),
        ("evaluation", 0),
        ("update", 1),
        ("update", 2),
        ("evaluation", 2),
        ("update", 3),
        ("evaluation", 3),
    ]


def test_every_metric_of_a_run_stands_in_the_glossary(full_run: Path) -> None:
    names = {name for event in read_events(full_run / "events.jsonl") for name in event} - {"kind", "step"}
    assert {name for name in names if describe(name) is None} == set()
    assert {"policy/loss", "critic/loss", "rollout/success", "credit/advantage_std", "eval/success"} <= names


def test_at_the_first_update_the_ratio_is_one_and_every_kl_is_zero(full_run: Path) -> None:
    first = updates_of(full_run)[0]
    for name in ("policy/ratio_mean", "policy/ratio_max", "mismatch/ratio_mean", "mismatch/ratio_max"):
        assert first[name] == pytest.approx(1.0, abs=1e-5)
    for name in ("policy/kl_old", "policy/kl_ref", "mismatch/kl"):
        assert first[name] == pytest.approx(0.0, abs=1e-6)
    assert first["policy/grad_norm"] > 0
    assert updates_of(full_run)[2]["policy/kl_ref"] > 1e-6


def test_the_resolved_recipe_is_written_and_reads_back(full_run: Path) -> None:
    recipe = load_recipe(full_run / "config.toml")
    assert recipe.algorithm.preset == "ppo"
    assert recipe.updates == 3
    assert Path(recipe.run_dir) == full_run


def test_the_exported_model_loads_and_is_the_trained_one(full_run: Path, symbol_model_dir: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(full_run / "model")
    tokenizer = AutoTokenizer.from_pretrained(full_run / "model")
    assert tokenizer.chat_template == AutoTokenizer.from_pretrained(symbol_model_dir).chat_template
    before = AutoModelForCausalLM.from_pretrained(symbol_model_dir).state_dict()
    warm = AutoModelForCausalLM.from_pretrained(full_run / "supervised" / "model").state_dict()
    after = model.state_dict()
    for name in ("lm_head.weight", "model.layers.0.mlp.up_proj.weight"):
        assert not torch.equal(before[name], warm[name])
        assert not torch.equal(warm[name], after[name])


def test_rollout_files_hold_every_step_with_its_advantage(full_run: Path) -> None:
    for update in (1, 2, 3):
        trajectories = read_rollouts(rollout_path(full_run, update))
        assert [(item.group, item.member) for item in trajectories] == [(g, m) for g in range(2) for m in range(4)]
        assert {item.seed for item in trajectories} == {group_seed(0, update - 1, group) for group in range(2)}
        assert {step.policy_version for item in trajectories for step in item.steps} == {update - 1}
        table = pq.read_table(rollout_path(full_run, update))
        assert table.num_rows == sum(len(item.steps) for item in trajectories)
        assert None not in table["advantage"].to_pylist()


def test_every_artefact_of_a_run_is_there(full_run: Path) -> None:
    names = {path.relative_to(full_run).parts[0] for path in full_run.iterdir()}
    assert names == {
        *("checkpoints", "config.toml", "curve.png", "evaluations", "events.jsonl", "model", "rollouts"),
        *("supervised", "tensorboard"),
    }
    assert (full_run / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((full_run / "tensorboard").glob("events.out.tfevents.*"))
    assert sorted(path.name for path in (full_run / "checkpoints").iterdir()) == ["step_000002", "step_000003"]
    evaluation = json.loads((full_run / "evaluations" / "step_000003.json").read_text())
    assert evaluation["tasks"] == 4
    assert pq.read_table(full_run / "evaluations" / "step_000003.parquet").num_rows == 4
    assert set(EvaluationRow.__annotations__) >= {"question", "responses", "success"}
    assert not list(full_run.rglob(".*"))  # nothing half written


def test_a_resumed_run_repeats_the_events_bit_for_bit(full_run: Path, symbol_recipe: Make) -> None:
    """Stopped after update 2, in the middle of the third; policy, critic, reference and warm start are all there."""
    folder = Path(symbol_recipe()["run_dir"])
    shutil.copytree(full_run, folder)
    shutil.rmtree(folder / "checkpoints" / "step_000003")
    with (folder / "events.jsonl").open("ab") as events:
        events.write(b'{"kind": "update", "st')
    train(recipe_from_dict(symbol_recipe(**FULL)), resume=True)
    assert events_of(folder) == events_of(full_run)
    one, other = (AutoModelForCausalLM.from_pretrained(path / "model").state_dict() for path in (folder, full_run))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_resumed_before_its_first_checkpoint_keeps_the_warm_start(
    full_run: Path, symbol_recipe: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(symbol_recipe()["run_dir"])
    monkeypatch.setattr("agentr1_train.trainer.Run.checkpoint_or_evaluate", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(recipe_from_dict(symbol_recipe(**FULL)))
    monkeypatch.undo()
    monkeypatch.syspath_prepend(Path(__file__).parent)
    assert latest(folder) is None
    written = (folder / "supervised" / "model" / "model.safetensors").stat().st_mtime_ns
    train(recipe_from_dict(symbol_recipe(**FULL)), resume=True)
    assert (folder / "supervised" / "model" / "model.safetensors").stat().st_mtime_ns == written
    assert events_of(folder) == events_of(full_run)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_the_warm_start_alone_and_then_the_run(full_run: Path, symbol_recipe: Make) -> None:
    recipe = recipe_from_dict(symbol_recipe(**FULL))
    out = supervised_only(recipe)
    assert AutoModelForCausalLM.from_pretrained(out)
    with pytest.raises(ConfigError, match="already holds a run"):
        supervised_only(recipe)
    train(recipe, resume=True)
    assert events_of(Path(recipe.run_dir)) == events_of(full_run)


def test_a_warm_start_by_another_recipe_is_not_taken(full_run: Path, symbol_recipe: Make) -> None:
    folder = Path(symbol_recipe()["run_dir"])
    supervised_only(recipe_from_dict(symbol_recipe(**FULL | {"supervised": {"batches": 1, "lr": 0.5}})))
    train(recipe_from_dict(symbol_recipe(**FULL)), resume=True)
    assert events_of(folder) == events_of(full_run)


def test_a_finished_run_goes_on_when_updates_are_raised(full_run: Path, symbol_recipe: Make) -> None:
    folder = Path(symbol_recipe()["run_dir"])
    shutil.copytree(full_run, folder)
    train(recipe_from_dict(symbol_recipe(**FULL | {"updates": 4})), resume=True)
    assert events_of(folder)[: len(events_of(full_run))] == events_of(full_run)
    assert [(event["kind"], event["step"]) for event in events_of(folder)[-2:]] == [("update", 4), ("evaluation", 4)]
    assert load_recipe(folder / "config.toml").updates == 4


def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(full_run: Path, symbol_recipe: Make) -> None:
    folder = Path(symbol_recipe()["run_dir"])
    shutil.copytree(full_run, folder)
    newest = folder / "checkpoints" / "step_000003"
    largest = max((path for path in newest.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    assert latest(folder) == folder / "checkpoints" / "step_000002"
    train(recipe_from_dict(symbol_recipe(**FULL)), resume=True)
    assert events_of(folder) == events_of(full_run)


def test_another_recipe_cannot_resume_a_run_and_changes_nothing(full_run: Path, symbol_recipe: Make) -> None:
    folder = Path(symbol_recipe()["run_dir"])
    shutil.copytree(full_run, folder)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(CheckpointError, match=r"optimizer.eps was 1e-08, is 1e-06"):
        train(recipe_from_dict(symbol_recipe(**FULL | {"optimizer": {"lr": 0.01, "eps": 1e-6}})), resume=True)
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_folder_that_holds_a_run_is_refused(full_run: Path, symbol_recipe: Make) -> None:
    before = (full_run / "events.jsonl").read_bytes()
    with pytest.raises(ConfigError, match=r"already holds a run.*--resume"):
        train(recipe_from_dict(symbol_recipe(run_dir=str(full_run))))
    assert (full_run / "events.jsonl").read_bytes() == before


def test_evaluation_alone_needs_no_engine_and_writes_its_files(symbol_recipe: Make) -> None:
    recipe = recipe_from_dict(symbol_recipe(evaluation={"episodes": 6}))
    evaluation = evaluate_only(recipe)
    folder = Path(recipe.run_dir)
    assert evaluation.tasks == 6
    assert json.loads((folder / "evaluations" / "evaluation.json").read_text())["success"] == evaluation.success
    assert {path.name for path in folder.iterdir()} == {"evaluations"}
    with pytest.raises(ConfigError, match="episodes is 0"):
        evaluate_only(recipe_from_dict(symbol_recipe()))


def test_the_adaptive_kl_coefficient_moves_and_survives_a_resume(symbol_recipe: Make) -> None:
    sections = {"algorithm": {"kl_target": 10.0, "kl_coef": 0.5}, "checkpoint": {"every": 1}}
    folder = train(recipe_from_dict(symbol_recipe(updates=3, **sections)))
    coefficients = [event["policy/kl_coef"] for event in updates_of(folder)]
    assert coefficients == pytest.approx([0.5, 0.5 * 0.98, 0.5 * 0.98**2])  # KL is far below the target
    before = events_of(folder)
    shutil.rmtree(folder / "checkpoints" / "step_000003")
    train(recipe_from_dict(symbol_recipe(updates=3, **sections)), resume=True)
    assert events_of(folder) == before


def test_intervals_are_counted_in_updates_done(symbol_recipe: Make) -> None:
    folder = train(
        recipe_from_dict(
            symbol_recipe(
                updates=5,
                tracking={"rollouts_every": 2},
                evaluation={"episodes": 2, "every": 3},
                checkpoint={"every": 2, "keep": 0, "export": False},
            )
        )
    )
    assert sorted(path.name for path in (folder / "rollouts").iterdir()) == [
        "step_000002.parquet",
        "step_000004.parquet",
    ]
    assert [event["step"] for event in events_of(folder) if event["kind"] == "evaluation"] == [0, 3, 5]
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == [
        "step_000002",
        "step_000004",
        "step_000005",
    ]
    assert not (folder / "model").exists()


def test_a_run_holds_its_environments_and_gives_them_back(symbol_recipe: Make) -> None:
    with open_run(recipe_from_dict(symbol_recipe())) as run:
        assert isinstance(run.recipe, Recipe)
        assert run.tracker is not None
        collected = run.roll_out(0)
        assert [group.index for group in collected.groups] == [0, 1]
        pool = run.collector.pool
    assert pool._closed
    assert tomllib.loads((run.folder / "config.toml").read_text())["updates"] == 2
