"""Rollouts ahead of their updates: exact versions, the same run each time, overlap, faults, and an exact resumption."""

import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from agentr1_train.collection import Collected, collect_update, dump_collected, load_collected
from agentr1_train.config import recipe_from_dict
from agentr1_train.errors import RolloutError
from agentr1_train.experience import build_experience
from agentr1_train.rollout import Stop
from agentr1_train.rollouts_ahead import RolloutsAhead
from agentr1_train.sampler.scripted import ScriptedSampler
from agentr1_train.tracking import read_events, read_rollouts, rollout_path
from agentr1_train.trainer import Run, open_run, train
from agentr1_train.trajectory import TrajectoryGroup
from agentr1_train.update import update_models
from agentr1_train.weight_sync import policy_weights, sync_weights
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.once

Make = Callable[..., dict[str, Any]]
WEIGHTS = [("a", torch.zeros(1))]
MOVING = {"env": {"kwargs": {"steps": 1}}, "rollout": {"groups": 4, "group_size": 8}, "optimizer": {"lr": 0.05}}
"""Some succeed and some do not, so that every update moves the policy."""


def events_of(folder: Path, *without: str) -> list[dict[str, Any]]:
    dropped = ("time/", *without)
    events = read_events(folder / "events.jsonl")
    return [{key: value for key, value in event.items() if not key.startswith(dropped)} for event in events]


def updates_of(folder: Path) -> list[dict[str, Any]]:
    return [event for event in read_events(folder / "events.jsonl") if event["kind"] == "update"]


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(folder / "model").state_dict()


def at_level(level: int, make: Make, name: str, **sections: Any) -> dict[str, Any]:
    table = make(**sections)
    table["rollout"] |= {"async_level": level}
    return table | {"run_dir": str(Path(table["run_dir"]).with_name(name))}


def is_running() -> bool:
    return any(thread.name == "agentr1-rollouts" for thread in threading.enumerate())


def test_level_0_is_the_run_without_the_setting(symbol_recipe: Make) -> None:
    plain = train(recipe_from_dict(symbol_recipe(updates=3)))
    zero = train(recipe_from_dict(at_level(0, symbol_recipe, "zero", updates=3)))
    assert events_of(zero) == events_of(plain)
    assert [event["rollout/staleness_max"] for event in updates_of(zero)] == [0, 0, 0]
    ours, theirs = weights_of(zero), weights_of(plain)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_level_0_is_bit_for_bit_play_then_update(symbol_recipe: Make) -> None:
    """The parts called one after another, with no loop of ours around them, give the same rollouts and weights."""
    table = at_level(0, symbol_recipe, "zero", updates=3, **MOVING)
    folder = train(recipe_from_dict(table))
    with open_run(recipe_from_dict(table | {"run_dir": f"{folder}_by_hand"})) as run:
        recipe, models = run.recipe, run.models
        for update in range(3):
            collected = collect_update(run.collector, recipe, run.settings, update)
            experience = build_experience(collected.groups, models, recipe, run.settings, seed=update, greedy={})
            update_models(experience, models, recipe, run.settings, update)
            assert sync_weights(models.policy, run.sampler) == update + 1
            written = read_rollouts(rollout_path(folder, update + 1))
            played = [item for group in collected.groups for item in group.trajectories]
            assert [_sampled(item) for item in played] == [_sampled(item) for item in written]
        ours, theirs = weights_of(folder), dict(policy_weights(models.policy))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def _sampled(item: Any) -> list[tuple[Any, ...]]:
    return [(step.prompt_ids, step.response_ids, step.response_logprobs) for step in item.steps]


@pytest.mark.parametrize("level", [1, 2])
def test_staleness_is_exact_and_a_run_repeats(level: int, symbol_recipe: Make) -> None:
    """Evaluations and checkpoints stand between the updates: the thread is where it was, whatever the timing."""
    more = {"updates": 5, "evaluation": {"episodes": 4, "every": 2}, "checkpoint": {"every": 2}}
    one, other = (train(recipe_from_dict(at_level(level, symbol_recipe, name, **more))) for name in ("one", "other"))
    wanted = [min(update, level) for update in range(5)]
    assert [event["rollout/staleness_mean"] for event in updates_of(one)] == wanted
    assert [event["rollout/staleness_max"] for event in updates_of(one)] == wanted
    assert [event["policy/version"] for event in updates_of(one)] == [1, 2, 3, 4, 5]
    for update in range(5):
        played = read_rollouts(rollout_path(one, update + 1))
        assert {step.policy_version for item in played for step in item.steps} == {max(0, update - level)}
    assert events_of(one) == events_of(other)
    ours, theirs = weights_of(one), weights_of(other)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert not is_running()


def test_a_rollout_is_what_its_version_of_the_weights_samples(symbol_recipe: Make) -> None:
    """The second rollout at level 1 is the one that the untrained model plays; at level 0 it is another."""
    more = {"updates": 2} | MOVING
    with open_run(recipe_from_dict(at_level(0, symbol_recipe, "fresh", **more))) as run:
        fresh = collect_update(run.collector, run.recipe, run.settings, 1)

    def sampled(groups: list[TrajectoryGroup]) -> list[tuple[Any, ...]]:
        steps = [step for group in groups for item in group.trajectories for step in item.steps]
        return [(step.response_ids, step.response_logprobs) for step in steps]

    for level in (0, 1):
        with open_run(recipe_from_dict(at_level(level, symbol_recipe, f"level_{level}", **more))) as run:
            run.learn(run.assign_credit(run.roll_out(0), 0), 0)
            second = run.roll_out(1)
        assert (sampled(second.groups) == sampled(fresh.groups)) == (level == 1)


def test_stale_samples_are_weighed_by_the_present_policy(symbol_recipe: Make) -> None:
    """The truncated weight pi / pi_sampler is on by default, and is not 1 where the weights have moved."""
    sections = {"updates": 3} | MOVING
    stale = updates_of(train(recipe_from_dict(at_level(1, symbol_recipe, "stale", **sections))))
    fresh = updates_of(train(recipe_from_dict(at_level(0, symbol_recipe, "fresh", **sections))))
    assert [event["mismatch/kl"] > 1e-4 for event in stale] == [False, True, True]
    assert [event["mismatch/kl"] > 1e-4 for event in fresh] == [False, False, False]
    assert stale[1]["mismatch/ratio_max"] > 1.01


def test_rollouts_and_updates_overlap(symbol_recipe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that sleeps 0.2 s a step, and updates as long as its rollouts: the waiting disappears."""
    more = {
        "updates": 4,
        "env": {"id": "stranger/Echo-v0", "kwargs": {"slow_s": 0.2, "turns": 2}},
        "rollout": {"max_prompt_tokens": 60, "max_response_tokens": 2},
        "optimizer": {"lr": 1e-6},
        "checkpoint": {"export": False},
    }
    learn, seen = Run.learn, []

    def learn_until_the_next_is_played(run: Run, *given: Any) -> None:
        if run.ahead is not None:
            seen.append(len(run.ahead.settle()))  # the thread plays on meanwhile
        learn(run, *given)

    monkeypatch.setattr(Run, "learn", learn_until_the_next_is_played)
    folders = [train(recipe_from_dict(at_level(at, symbol_recipe, f"level_{at}", **more))) for at in (0, 1)]
    waited, less = (sum(event["time/rollout"] for event in updates_of(folder)[1:]) for folder in folders)
    played = sum(event["time/play"] for event in updates_of(folders[1])[1:])
    assert waited >= 3 * 0.4
    assert played >= 3 * 0.4
    assert less < 0.5 * played
    assert seen == [1, 1, 1, 0]


def test_what_fails_in_the_thread_is_raised_by_the_run(symbol_recipe: Make) -> None:
    broken = {"id": "stranger/Echo-v0", "kwargs": {"fail": "step"}}
    rollout = {"max_prompt_tokens": 60}
    with pytest.raises(RolloutError, match=r"update 0: 100% of the trajectories failed.*inventory"):
        train(recipe_from_dict(at_level(2, symbol_recipe, "broken", env=broken, rollout=rollout)))
    assert not is_running()


def test_a_failure_comes_after_the_rollouts_before_it(tiny_tokenizer: Any) -> None:
    def play(update: int) -> Collected:
        if update == 2:
            raise MemoryError("no room for the cache")
        return Collected([], metrics={"update": update})

    ahead = played_ahead(play, tiny_tokenizer, level=1, updates=4)
    for update in range(2):
        assert ahead.take(update).metrics["update"] == update
        ahead.hold(WEIGHTS)
    for call in (ahead.settle, ahead.refresh, lambda: ahead.take(2)):
        with pytest.raises(MemoryError, match="no room"):
            call()
    ahead.close()


def played_ahead(play: Callable[[int], Collected], tokenizer: Any, **settings: Any) -> RolloutsAhead:
    sampler = ScriptedSampler(tokenizer, lambda prompt, key: "")
    return RolloutsAhead(play, sampler, first=0, stop=Stop(), **settings)


@pytest.mark.parametrize("level", [1, 3])
def test_the_thread_goes_as_far_as_its_level_and_no_further(level: int, tiny_tokenizer: Any) -> None:
    """Each rollout with its version; held versions are let go; the sampler has the newest ones for an evaluation."""
    updates, seen = 8, []

    def play(update: int) -> Collected:
        seen.append((update, ahead._sampler.policy_version))
        return Collected([])

    ahead = played_ahead(play, tiny_tokenizer, level=level, updates=updates)
    assert ahead.settle() == []  # nothing is played before the first take
    for update in range(updates):
        ahead.take(update)
        assert len(ahead.settle()) == min(level, updates - update - 1)
        assert len(seen) == min(update + level + 1, updates)
        ahead.hold(WEIGHTS)
        assert len(ahead._weights) <= level
        if update in (2, updates - 1):
            ahead.refresh()
            assert ahead._sampler.policy_version == update + 1
    assert seen == [(update, max(0, update - level)) for update in range(updates)]
    ahead.close()
    assert not is_running()


def test_closing_does_not_wait_for_an_environment_that_hangs(symbol_recipe: Make) -> None:
    env = {"id": "stranger/Echo-v0", "kwargs": {"fail": "hang_step"}}
    recipe = recipe_from_dict(at_level(1, symbol_recipe, "hung", env=env, rollout={"max_prompt_tokens": 60}))
    main, started = threading.get_ident(), []

    def interrupted() -> None:
        with open_run(recipe) as run:
            threading.Timer(1.0, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
            started.append(time.perf_counter())
            run.roll_out(0)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.perf_counter() - started[0] < 20  # the environment hangs for 30 s
    assert not is_running()


def test_a_stop_that_was_asked_for_ends_a_later_collect_too() -> None:
    stop, called = Stop(), []
    with stop.calls(lambda: called.append("first")):
        stop.ask()
    with stop.calls(lambda: called.append("second")):
        pass
    stop.ask()  # nothing runs any more
    assert called == ["first", "second"]


def test_what_was_played_reads_back_equal(symbol_recipe: Make) -> None:
    table = symbol_recipe(
        algorithm={"preset": "remax"},
        env={"id": "stranger/Echo-v0", "kwargs": {"turns": 2, "fail": "step", "fail_seeds": [1]}},
        rollout={"max_prompt_tokens": 60, "branch_width": 2, "branch_limit": 2, "branch_probability": 1.0},
    )
    with open_run(recipe_from_dict(table)) as run:
        collected = run.roll_out(0)
    assert collected.greedy
    assert collected.versions == {0: sum(len(item.steps) - item.shared_steps for item in trajectories(collected))}
    assert load_collected(dump_collected([collected, Collected([])])) == [collected, Collected([])]


def trajectories(collected: Collected) -> list[Any]:
    return [item for group in collected.groups for item in group.trajectories]


@pytest.mark.parametrize("level", [1, 2])
def test_a_resumed_run_repeats_the_events_bit_for_bit(level: int, symbol_recipe: Make) -> None:
    """The rollouts that were ahead at the checkpoint are in it, so nothing is played with other weights."""
    more = {
        "updates": 5,
        "algorithm": {"preset": "remax"},
        "evaluation": {"episodes": 4, "every": 2},
        "checkpoint": {"every": 2, "keep": 0},
    }
    whole = train(recipe_from_dict(at_level(level, symbol_recipe, "whole", **more)))
    cut = whole.with_name("cut")
    shutil.copytree(whole, cut)
    for step in (4, 5):
        shutil.rmtree(cut / "checkpoints" / f"step_{step:06d}")
    train(recipe_from_dict(at_level(level, symbol_recipe, "cut", **more)), resume=True)
    assert events_of(cut) == events_of(whole)
    ours, theirs = weights_of(cut), weights_of(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_finished_run_that_goes_on_starts_fresh(symbol_recipe: Make) -> None:
    """Nothing was ahead at its end: the first new rollout has the newest weights."""
    table = at_level(2, symbol_recipe, "run", updates=3)
    folder = train(recipe_from_dict(table))
    train(recipe_from_dict(table | {"updates": 7}), resume=True)
    assert [event["rollout/staleness_max"] for event in updates_of(folder)] == [0, 1, 2, 0, 1, 2, 2]
