"""Recipes for ALFWorld, WebShop and PaperSearch, each taken one update far on the bundled tasks with a tiny model.

Those for a small machine run as they stand but for their sizes: supervised start, update, evaluations, export. Those
for Qwen3-4B run with a tiny model in its place, on the CPU, so that what they say of environment and algorithm holds.
"""

from pathlib import Path

import pytest
from agentr1_train.cli import read_recipe
from agentr1_train.config import Recipe
from agentr1_train.init_model import ModelShape, init_model_for
from agentr1_train.tracking import read_events, read_rollouts
from agentr1_train.trainer import train

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RECIPES = Path(__file__).resolve().parent.parent / "packages" / "agentr1-train" / "recipes"
SMALL = ("alfworld_gigpo_small", "papersearch_grpo_small", "webshop_grpo_small")
LARGE = ("alfworld_gigpo_qwen3_4b", "papersearch_pspo_qwen3_4b", "webshop_steppo_qwen3_4b")
ONE_UPDATE = (
    *("--updates", "1", "--rollout.groups", "2", "--rollout.group-size", "2", "--rollout.max-response-tokens", "8"),
    *("--rollout.max-steps", "10", "--rollout.max-prompt-tokens", "4096"),
    *("--evaluation.episodes", "2", "--optimizer.minibatches", "1", "--env.kwargs.data", "bundled"),
    *("--tracking.no-tensorboard", "--tracking.no-progress", "--tracking.rollouts-every", "1"),
)
ON_A_CPU = (
    *("--engine.device", "cpu", "--engine.dtype", "fp32", "--engine.zero-stage", "0", "--sampler.dtype", "fp32"),
    *("--env.kwargs.tools-in-template", "false"),  # the tiny model's template has no tools
)


def one_update(name: str, folder: Path, *words: str) -> tuple[Recipe, list[dict]]:
    """Make a tiny model from the recipe's environment, train one update, and return the recipe and its events."""
    places = ("--run-dir", str(folder / "run"), "--model.path", str(folder / "model"))
    recipe = read_recipe([str(RECIPES / f"{name}.toml"), *places, *ONE_UPDATE, *words], "train")
    init_model_for(recipe, ModelShape(hidden=32, layers=1, heads=2, positions=8192), episodes=8)
    train(recipe)
    return recipe, read_events(folder / "run" / "events.jsonl")


def kind(events: list[dict], name: str) -> list[dict]:
    return [event for event in events if event["kind"] == name]


@pytest.mark.parametrize("name", SMALL)
def test_small_recipe_goes_from_demonstrations_to_an_update(name: str, tmp_path: Path) -> None:
    _, events = one_update(name, tmp_path, "--supervised.batches", "2", "--supervised.batch-size", "2")
    warm = kind(events, "supervised")
    assert [event["step"] for event in warm] == [1, 2]
    assert all(event["supervised/tokens"] > 0 and event["supervised/failed"] == 0 for event in warm)
    (update,) = kind(events, "update")
    assert update["rollout/errors"] == 0
    assert update["policy/skipped_steps"] == 0
    assert [event["step"] for event in kind(events, "evaluation")] == [0, 1]
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize("name", LARGE)
def test_large_recipe_trains_a_tiny_model(name: str, tmp_path: Path) -> None:
    words = ON_A_CPU[:-2] if "webshop" in name else ON_A_CPU  # the shop has no tools
    recipe, events = one_update(name, tmp_path, *words)
    (update,) = kind(events, "update")
    assert update["rollout/errors"] == 0
    assert ("critic/loss" in update) == (recipe.algorithm.preset in ("steppo", "pspo"))
    assert [event["step"] for event in kind(events, "evaluation")] == [0, 1]


def test_papersearch_prompts_hold_the_state_once(tmp_path: Path) -> None:
    """Its observation is the whole state, so a prompt must not repeat the ones before."""
    one_update("papersearch_grpo_small", tmp_path, "--supervised.batches", "0")
    for trajectory in read_rollouts(tmp_path / "run" / "rollouts" / "step_000001.parquet"):
        first, *later = (step.prompt_ids for step in trajectory.steps)
        assert all(ids[: len(first)] != first for ids in later)
