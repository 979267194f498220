"""What environments, limits and empty answers do to a run: each ends as designed and is counted in the event."""

import math
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentr1_train.config import recipe_from_dict
from agentr1_train.errors import RolloutError
from agentr1_train.rollout import group_seed
from agentr1_train.tracking import read_events, read_rollouts, rollout_path
from agentr1_train.trainer import train

pytestmark = pytest.mark.once

Make = Callable[..., dict[str, Any]]


def updates_of(folder: Path) -> list[dict[str, Any]]:
    return [event for event in read_events(folder / "events.jsonl") if event["kind"] == "update"]


def echo(make: Make, model: Path, **sections: Any) -> dict[str, Any]:
    """A recipe on ``EchoEnv``, which can be made to fail, answered by a script."""
    kwargs = sections.pop("kwargs", {})
    patience = 3.0 if kwargs.get("fail", "").startswith("hang_") else 60.0  # those that answer do so in time
    env = {"id": "stranger/Echo-v0", "kwargs": kwargs, "step_timeout_s": patience, "reset_timeout_s": patience}
    rollout = {"max_prompt_tokens": 400, "max_response_tokens": 24} | sections.pop("rollout", {})
    scripted = {"name": "scripted", "script": "test_scripts_of_trainer:answers"}
    settings = {"env": env, "rollout": rollout, "sampler": scripted, "model": {"path": str(model)}, "updates": 1}
    return make(**settings | sections)


def answers(prompt: str, key: tuple[int, ...]) -> str:
    """Half of the members say every word and are right; the others say nothing of use."""
    return "left right up down" if key[-2] % 2 else "stay"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a recipe name functions of this file as its sampler's script."""
    module = types.ModuleType("test_scripts_of_trainer")
    module.answers, module.silence = answers, lambda prompt, key: ""  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "test_scripts_of_trainer", module)


@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        ("reset", "reset: ValueError: no such game"),
        ("step", "step 0: KeyError: 'inventory'"),
        ("hang_reset", r"reset: TimeoutError: no answer within 3 s"),
        ("hang_step", r"step 0: TimeoutError: no answer within 3 s"),
        ("nan", r"step 0: the reward is nan \(float\); a finite number is needed"),
        ("huge", r"step 0: the reward is 1e\+300 \(float\); a number of at most 1e\+100 in size is needed"),
        ("type", r"step 0: the reward is 'one' \(str\); a finite number is needed"),
    ],
)
@pytest.mark.usefixtures("scripts")
def test_failures_in_the_environment_are_data(
    fail: str, reason: str, symbol_recipe: Make, tiny_model_dir: Path
) -> None:
    """One of two groups fails; the run goes on, counts it, and trains on the other."""
    bad = group_seed(0, 0, 0)
    table = echo(symbol_recipe, tiny_model_dir, kwargs={"fail": fail, "fail_seeds": (bad,)})
    folder = train(recipe_from_dict(table))
    (event,) = updates_of(folder)
    assert (event["rollout/trajectories"], event["rollout/errors"], event["end/error"]) == (8, 4, 4)
    assert event["end/terminated"] == 2
    assert math.isfinite(event["policy/loss"])
    trained = [item for item in read_rollouts(rollout_path(folder, 1)) if item.error is None]
    assert event["policy/tokens"] == sum(len(step.response_ids) for item in trained for step in item.steps)
    failed = [item for item in read_rollouts(rollout_path(folder, 1)) if item.error is not None]
    assert {item.seed for item in failed} == {bad}
    for item in failed:
        assert re.fullmatch(reason, item.error or "")


@pytest.mark.usefixtures("scripts")
def test_too_many_failures_stop_the_run_with_the_commonest_reason(symbol_recipe: Make, tiny_model_dir: Path) -> None:
    table = echo(symbol_recipe, tiny_model_dir, kwargs={"fail": "step"})
    with pytest.raises(RolloutError, match=r"100% .*max_error_fraction = 0.5.*step 0: KeyError: 'inventory'"):
        train(recipe_from_dict(table))


@pytest.mark.usefixtures("scripts")
def test_a_failed_trajectory_is_trained_as_truncated_where_the_recipe_says_so(
    symbol_recipe: Make, tiny_model_dir: Path
) -> None:
    kwargs = {"fail": "step", "fail_seeds": (group_seed(0, 0, 0),)}
    folder = train(
        recipe_from_dict(echo(symbol_recipe, tiny_model_dir, kwargs=kwargs, rollout={"on_error": "truncate"}))
    )
    (event,) = updates_of(folder)
    played = [step for item in read_rollouts(rollout_path(folder, 1)) for step in item.steps]
    assert event["rollout/errors"] == 4
    assert event["policy/tokens"] == sum(len(step.response_ids) for step in played)


@pytest.mark.usefixtures("scripts")
def test_a_run_in_which_everything_fails_or_is_cut_goes_on_and_trains_nothing(
    symbol_recipe: Make, tiny_model_dir: Path
) -> None:
    table = echo(
        symbol_recipe,
        tiny_model_dir,
        kwargs={"fail": "reset", "fail_seeds": (group_seed(0, 0, 0),)},
        rollout={"max_prompt_tokens": 3, "max_error_fraction": 1.0},
    )
    (event,) = updates_of(train(recipe_from_dict(table)))
    assert (event["end/error"], event["end/prompt_too_long"]) == (4, 4)
    assert event["policy/optimizer_steps"] == 0


@pytest.mark.usefixtures("scripts")
def test_each_limit_ends_a_trajectory_in_its_own_way(symbol_recipe: Make, tiny_model_dir: Path) -> None:
    def run(name: str, **rollout: Any) -> dict[str, Any]:
        table = echo(symbol_recipe, tiny_model_dir, rollout=rollout)
        return updates_of(train(recipe_from_dict(table | {"run_dir": table["run_dir"] + name})))[0]

    free = run("free")
    assert (free["end/terminated"], free["end/env_truncated"]) == (4, 4)
    cut = run("cut", max_response_tokens=2)
    assert cut["finish/length"] > 0
    assert cut["rollout/response_tokens_max"] == 2
    steps = run("steps", max_steps=1)
    assert (steps["end/max_steps"], steps["rollout/truncated_fraction"]) == (4, 0.5)
    long = run("long", max_prompt_tokens=30)
    assert long["end/prompt_too_long"] == 4
    budget = run("budget", max_trajectory_tokens=5)
    assert budget["end/token_budget"] > 0


@pytest.mark.usefixtures("scripts")
def test_empty_responses_and_equal_rewards_train_nothing_and_make_no_nan(
    symbol_recipe: Make, tiny_model_dir: Path
) -> None:
    scripted = {"name": "scripted", "script": "test_scripts_of_trainer:silence"}
    (event,) = updates_of(train(recipe_from_dict(echo(symbol_recipe, tiny_model_dir, sampler=scripted))))
    assert event["rollout/flat_groups"] == 2
    assert event["credit/advantage_abs_max"] == 0
    assert event["policy/grad_norm"] == pytest.approx(0.0, abs=1e-6)
    assert math.isfinite(event["policy/loss"])
