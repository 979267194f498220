"""The warm start: it imitates demonstrations that succeed, and says clearly what cannot be imitated."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from agentr1_train.config import recipe_from_dict
from agentr1_train.errors import ConfigError, MissingFileError
from agentr1_train.supervised import transcripts
from agentr1_train.tracking import read_events, read_rollouts, rollout_path, write_rollouts
from agentr1_train.trainer import evaluate_only, supervised_only, train
from agentr1_train.trajectory import Step, Trajectory
from transformers import AutoModelForCausalLM, AutoTokenizer

Make = Callable[..., dict[str, Any]]


def warm(make: Make, spoil: str = "", **supervised: Any) -> dict[str, Any]:
    env = {"id": "symbol_env:ShownSymbol-v0", "kwargs": {"spoil": spoil}}
    settings = {"batches": 30, "batch_size": 8, "lr": 1e-2} | supervised
    return make(env=env, rollout={"max_response_tokens": 2}, supervised=settings)


def losses(folder: Path) -> list[dict[str, Any]]:
    return [event for event in read_events(folder / "events.jsonl") if event["kind"] == "supervised"]


def test_the_loss_falls_and_the_model_then_solves_the_task(symbol_recipe: Make, tmp_path: Path) -> None:
    table = warm(symbol_recipe)
    out = supervised_only(recipe_from_dict(table))
    assert out == Path(table["run_dir"]) / "supervised" / "model"
    events = losses(Path(table["run_dir"]))
    assert [event["step"] for event in events] == list(range(1, 31))
    assert events[0]["supervised/loss"] > 1.0
    assert events[-1]["supervised/loss"] < 0.4  # a symbol is certain after its observation, and so is the end token
    assert {event["supervised/tokens"] for event in events} == {8 * 2 * 2}  # tasks, steps, symbol and end token
    assert {event["supervised/lr"] for event in events} == {1e-2}
    assert AutoModelForCausalLM.from_pretrained(out)
    there = table | {"model": {"path": str(out)}, "run_dir": str(tmp_path / "eval"), "evaluation": {"episodes": 20}}
    assert evaluate_only(recipe_from_dict(there)).success == 1.0


def test_demonstrations_without_success_are_counted_and_not_imitated(symbol_recipe: Make) -> None:
    """Where the word begins with an a the demonstration is wrong: only the others are trained."""
    table = warm(symbol_recipe, "half", batches=4)
    supervised_only(recipe_from_dict(table))
    for event in losses(Path(table["run_dir"])):
        assert 0 < event["supervised/failed"] < 8
        assert event["supervised/tokens"] == (8 - event["supervised/failed"]) * 2 * 2


def test_failures_are_imitated_when_asked_for(symbol_recipe: Make, tmp_path: Path) -> None:
    """Where the demonstration is wrong it ends at its first step, a symbol and the end token."""
    choosy = warm(symbol_recipe, "half", batches=4)
    supervised_only(recipe_from_dict(choosy))
    greedy = warm(symbol_recipe, "half", batches=4, failures=True) | {"run_dir": str(tmp_path / "all")}
    supervised_only(recipe_from_dict(greedy))
    for left_out, event in zip(losses(Path(choosy["run_dir"])), losses(tmp_path / "all"), strict=True):
        assert event["supervised/failed"] == 0
        assert event["supervised/tokens"] == left_out["supervised/tokens"] + 2 * left_out["supervised/failed"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("wrong", "no demonstration of the batch succeeded: it ended as terminated, without success"),
        ("short", "the demonstration of symbol_env:ShownSymbol-v0 ended before its episode did"),
        ("broken", "the demonstration of symbol_env:ShownSymbol-v0 failed: RuntimeError: the solution is lost"),
    ],
)
def test_what_cannot_be_imitated_is_told_before_anything_is_written(spoil: str, said: str, symbol_recipe: Make) -> None:
    table = warm(symbol_recipe, spoil)
    with pytest.raises(ConfigError, match=said):
        supervised_only(recipe_from_dict(table))
    assert not Path(table["run_dir"]).exists()


def test_an_environment_without_demonstrations_says_what_to_do(symbol_recipe: Make) -> None:
    table = symbol_recipe(supervised={"batches": 1})
    with pytest.raises(ConfigError, match=r"no demonstration\(\).*supervised.demonstrations"):
        supervised_only(recipe_from_dict(table))
    with pytest.raises(ConfigError, match=r"supervised.batches is 0.*--supervised.batches 20"):
        supervised_only(recipe_from_dict(symbol_recipe()))


def test_recorded_rollouts_are_demonstrations_too(symbol_recipe: Make, tmp_path: Path) -> None:
    """The successful trajectories of another run's rollout file; a stranger's environment needs no method for it."""
    made = symbol_recipe(updates=1, rollout={"groups": 8}, run_dir=str(tmp_path / "first"))
    played = read_rollouts(rollout_path(train(recipe_from_dict(made)), 1))
    won = [replace(item, success=True) for item in played[:3]]
    lost = [replace(item, success=False) for item in played[3:]]
    file = tmp_path / "shown.parquet"
    write_rollouts(file, won + lost)
    settings = {"batches": 5, "batch_size": 3, "demonstrations": str(file), "schedule": "linear"}
    table = symbol_recipe(supervised=settings)
    supervised_only(recipe_from_dict(table))
    events = losses(Path(table["run_dir"]))
    assert {event["supervised/tokens"] for event in events} == {sum(len(s.response_ids) for t in won for s in t.steps)}
    assert events[-1]["supervised/loss"] < events[0]["supervised/loss"]
    assert [event["supervised/lr"] for event in events] == pytest.approx([1e-4 * left / 5 for left in (5, 4, 3, 2, 1)])

    write_rollouts(file, lost)
    table |= {"run_dir": str(tmp_path / "none")}
    with pytest.raises(ConfigError, match="holds no successful trajectory"):
        supervised_only(recipe_from_dict(table))
    file.write_bytes(b"no parquet")
    with pytest.raises(ConfigError, match="is not a parquet file"):
        supervised_only(recipe_from_dict(table))
    table["supervised"]["demonstrations"] = str(tmp_path / "absent.parquet")
    with pytest.raises(MissingFileError, match=r"absent.parquet"):
        supervised_only(recipe_from_dict(table))
    assert not (tmp_path / "none").exists()


def test_transcripts_are_read_whole_and_each_text_once() -> None:
    said = [((1, 2, 3), (4, 5)), ((1, 2, 3, 4, 5, 6, 7), (8,)), ((1, 9), (4,))]
    steps = tuple(Step(*ids, (-1.0,) * len(ids[1]), "", "", 0.0, False, False, "stop", "") for ids in said)
    rows = transcripts([Trajectory(steps, "", "", 0, 0, 0, True, "terminated", "")])
    assert [row.prompt_ids + row.response_ids for row in rows] == [(1, 2, 3, 4, 5, 6, 7, 8), (1, 9, 4)]
    assert {len(row.prompt_ids) for row in rows} == {1}


def test_a_transcript_trains_what_the_environment_says(symbol_recipe: Make, tmp_path: Path) -> None:
    """The frame of a prompt is the same in every task: only with the transcript is it learned."""
    likely: dict[float, float] = {}
    for weight in (0.0, 1.0):
        table = warm(symbol_recipe, transcript=weight) | {"run_dir": str(tmp_path / str(weight))}
        folder = supervised_only(recipe_from_dict(table))
        model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        event = losses(Path(table["run_dir"]))[-1]
        assert event["supervised/tokens"] == 8 * 2 * 2
        assert event["supervised/loss"] < 0.4
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": "a"}], add_generation_prompt=True, tokenize=False
        )
        prompt = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
        with torch.no_grad():
            likely[weight] = -model(prompt, labels=prompt).loss.item()
    assert likely[1.0] > likely[0.0] + 0.5
