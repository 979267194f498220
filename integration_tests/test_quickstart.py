"""The quickstart, as `make quickstart` runs it, and its control. Real launcher, two ranks, the recipe as it stands."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from agentr1_train.config import load_recipe
from agentr1_train.quickstart import RECIPE
from agentr1_train.tracking import read_events
from small_runs import free_port, place_of_runs, run_quickstart

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.ranks, pytest.mark.timeout(1800), pytest.mark.xdist_group("quickstart")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, in a folder of its own; the tests under vLLM begin where it began."""
    run, said = run_quickstart(place_of_runs(tmp_path_factory.mktemp("runs")) / "quickstart")
    assert "supervised start" in said
    assert "after GRPO" in said
    return run


def evaluations(folder: Path) -> list[dict[str, Any]]:
    return [event for event in read_events(folder / "events.jsonl") if event["kind"] == "evaluation"]


def test_it_learns(folder: Path) -> None:
    first, *_, last = evaluations(folder)
    assert first["step"] == 0
    assert 0.2 <= first["eval/success"] <= 0.6
    assert last["eval/success"] - first["eval/success"] >= 0.25
    assert (folder / "curve.png").stat().st_size > 10_000
    assert (folder / "model" / "model.safetensors").is_file()


def test_permuted_returns_teach_nothing(folder: Path) -> None:
    """As many updates as the run had done by its evaluation in the middle, with most of what it learns behind it."""
    middle = evaluations(folder)[1]
    start, control = folder / "supervised" / "model", folder.with_name("control")
    command = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_accelerators", "2"]
    command += ["--master_port", str(free_port())]
    command += ["--module", "agentr1_train", str(ROOT / RECIPE), "--run-dir", str(control)]
    command += ["--model.path", str(start), "--supervised.batches", "0", "--algorithm.permute-returns", "batch"]
    command += ["--updates", str(middle["step"])]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PATH": tools}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    first, *_, last = evaluations(control)
    assert first["eval/success"] == evaluations(folder)[0]["eval/success"]
    assert last["step"] == middle["step"]
    assert last["eval/success"] <= first["eval/success"] + 0.05
    assert last["eval/success"] <= middle["eval/success"] - 0.2


def test_held_out_problems_are_new() -> None:
    recipe = load_recipe(ROOT / RECIPE)
    texts = {}
    for split in ("train", "test"):
        env = gymnasium.make(recipe.env.id, **{**recipe.env.kwargs, "split": split})
        ids = env.get_wrapper_attr("task_ids")
        texts[split] = {env.reset(options={"task_id": task})[0] for task in ids}
    assert recipe.evaluation.episodes >= 200
    assert len(texts["test"]) >= recipe.evaluation.episodes
    assert not texts["test"] & texts["train"]
