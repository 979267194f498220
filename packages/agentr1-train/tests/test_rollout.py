"""Rollouts: fixed order, noise that belongs to the episode, side by side, failures that stay alone."""

import asyncio
import gc
import os
import signal
import threading
import time
from typing import Any

import pytest
from agentr1_train.config import EnvConfig, RolloutConfig
from agentr1_train.env_pool import EnvPool
from agentr1_train.flow import AgentEnvLoop, Episode
from agentr1_train.renderer import Renderer
from agentr1_train.rollout import (
    EVALUATION_STREAM,
    GroupSpec,
    collect,
    collect_async,
    failures,
    group_seed,
    update_groups,
)
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.scripted import ScriptedSampler
from agentr1_train.trajectory import TrajectoryGroup

pytestmark = pytest.mark.once

SETTINGS = RolloutConfig(max_prompt_tokens=400, max_response_tokens=24, top_p=0.95)


def roll(tokenizer: Any, sampler: Any, groups: list[GroupSpec], size: int = 3, **options: Any) -> list[TrajectoryGroup]:
    kwargs = options.pop("env", {})
    timeout = options.pop("timeout_s", 20.0)
    settings = {"key": (0, 0, 5), "concurrency": 8} | options
    config = EnvConfig(id="stranger/Echo-v0", kwargs=kwargs, reset_timeout_s=timeout, step_timeout_s=timeout)
    with EnvPool(config) as pool:
        return collect(pool, sampler, AgentEnvLoop(Renderer(tokenizer), SETTINGS), groups, group_size=size, **settings)


def tokens(groups: list[TrajectoryGroup]) -> list[list[tuple[int, ...]]]:
    return [[step.response_ids for step in t.steps] for group in groups for t in group.trajectories]


def all_words(prompt: str, key: tuple[int, ...]) -> str:
    return "left right up down"


def test_groups_come_in_order_with_members_in_order(tiny_model, tiny_tokenizer) -> None:
    specs = update_groups(1, 0, 4)
    groups = roll(tiny_tokenizer, HFSampler(tiny_model, tiny_tokenizer), specs)
    assert [(group.index, group.seed) for group in groups] == [(spec.index, spec.seed) for spec in specs]
    for group in groups:
        assert [(t.group, t.member, t.seed) for t in group.trajectories] == [
            (group.index, member, group.seed) for member in range(3)
        ]
        assert len({t.steps[0].prompt_ids for t in group.trajectories}) == 1  # one start
        assert len({t.steps[0].response_ids for t in group.trajectories}) > 1  # different noise


def test_an_episode_samples_the_same_on_any_rank_and_at_any_width(tiny_model, tiny_tokenizer) -> None:
    sampler = HFSampler(tiny_model, tiny_tokenizer)
    whole = roll(tiny_tokenizer, sampler, update_groups(1, 0, 4), patience_s=60.0)
    # A fresh sampler, as after a weight sync: what the first one has kept would change the rounding.
    again = roll(tiny_tokenizer, HFSampler(tiny_model, tiny_tokenizer), update_groups(1, 0, 4), patience_s=60.0)
    assert whole[0].trajectories[0].steps[0].response_logprobs == again[0].trajectories[0].steps[0].response_logprobs
    narrow = roll(tiny_tokenizer, sampler, update_groups(1, 0, 4), concurrency=2)
    ranks = [roll(tiny_tokenizer, sampler, update_groups(1, 0, 4, rank=rank, world=2)) for rank in (0, 1)]
    dealt = sorted((group for groups in ranks for group in groups), key=lambda group: group.index)
    assert tokens(whole) == tokens(again) == tokens(narrow) == tokens(dealt)
    other = roll(tiny_tokenizer, sampler, update_groups(1, 0, 4), key=(0, 0, 6))
    assert tokens(other) != tokens(whole)


def test_seeds_are_a_pure_function_of_run_update_and_slot() -> None:
    assert group_seed(0, 0, 0) == group_seed(0, 0, 0)
    seeds = {
        group_seed(run, update, slot, stream)
        for run in range(3)
        for update in range(20)
        for slot in range(20)
        for stream in (0, EVALUATION_STREAM)
    }
    assert len(seeds) == 3 * 20 * 20 * 2
    assert all(0 <= seed < 2**31 for seed in seeds)
    dealt = [spec for rank in range(3) for spec in update_groups(0, 4, 8, rank=rank, world=3)]
    assert sorted(dealt, key=lambda spec: spec.index) == update_groups(0, 4, 8)


def test_failing_episodes_leave_the_others_alone(tiny_tokenizer) -> None:
    specs = update_groups(0, 0, 6)
    bad = (specs[1].seed, specs[4].seed)
    for kind in ("reset", "step", "hang_step"):
        groups = roll(
            tiny_tokenizer,
            ScriptedSampler(tiny_tokenizer, all_words),
            specs,
            env={"fail": kind, "fail_seeds": bad},
            timeout_s=3.0 if kind == "hang_step" else 60.0,
        )
        ends = [{t.end_reason for t in group.trajectories} for group in groups]
        assert ends == [{"error"} if spec.seed in bad else {"terminated"} for spec in specs]
        fraction, reason = failures(t for group in groups for t in group.trajectories)
        assert fraction == pytest.approx(1 / 3)
        assert kind.removeprefix("hang_") in reason
    assert failures([]) == (0.0, "")


def test_episodes_run_side_by_side_and_a_slow_one_holds_nobody(tiny_tokenizer) -> None:
    turns: list[tuple[int, int]] = []
    others = {(member, turn) for member in range(1, 16) for turn in range(2)}
    through = threading.Event()

    class Noting(ScriptedSampler):
        def sample(self, prompts: Any, params: Any) -> Any:
            turns.extend(prompt.key[-2:] for prompt in prompts)
            if others <= set(turns):
                through.set()
            return super().sample(prompts, params)

    class SlowFirst(AgentEnvLoop):
        async def run(self, episode: Episode) -> Any:
            env = episode.env._env.unwrapped
            if episode.member == 0:
                env.step = lambda action: (through.wait(30), type(env).step(env, action))[1]
            return await super().run(episode)

    sampler = Noting(tiny_tokenizer, lambda prompt, key: "no")
    with EnvPool(EnvConfig(id="stranger/Echo-v0", kwargs={"turns": 2})) as pool:
        flow = SlowFirst(Renderer(tiny_tokenizer), SETTINGS)
        collect(pool, sampler, flow, [GroupSpec(0, 1)], group_size=16, key=(0,), concurrency=16)
    assert sorted(turns) == sorted(others | {(0, 0), (0, 1)})
    assert turns[-1] == (0, 1)  # all the others are through before its second turn


def test_prompts_of_many_episodes_are_sampled_together(tiny_tokenizer) -> None:
    sizes: list[int] = []

    class Counting(ScriptedSampler):
        def sample(self, prompts: Any, params: Any) -> Any:
            sizes.append(len(prompts))
            return super().sample(prompts, params)

    specs = update_groups(0, 0, 4)
    sampler = Counting(tiny_tokenizer, lambda prompt, key: "no")
    roll(tiny_tokenizer, sampler, specs, size=4, concurrency=16, patience_s=60.0)
    assert sizes == [16, 16, 16]


def test_a_sampler_that_fails_stops_the_rollout_with_its_own_error(tiny_tokenizer) -> None:
    def script(prompt: str, key: tuple[int, ...]) -> str:
        raise MemoryError("no room for keys and values")

    before = threading.active_count()
    with pytest.raises(MemoryError, match="no room"):
        roll(tiny_tokenizer, ScriptedSampler(tiny_tokenizer, script), update_groups(0, 0, 3))
    deadline = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_ctrl_c_pressed_again_while_episodes_let_go(tiny_tokenizer) -> None:
    """Warnings are errors: a coroutine torn from its loop would fail this test."""
    let_go = []
    all_there = asyncio.Barrier(3)

    class Impatient(AgentEnvLoop):
        async def run(self, episode: Episode) -> Any:
            await all_there.wait()
            try:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(60)
            finally:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(0)
                let_go.append(episode.member)

    before = signal.getsignal(signal.SIGINT)
    flow = Impatient(Renderer(tiny_tokenizer), SETTINGS)
    with EnvPool(EnvConfig(id="stranger/Echo-v0")) as pool, pytest.raises(KeyboardInterrupt):
        collect(
            pool, ScriptedSampler(tiny_tokenizer, all_words), flow, [GroupSpec(0, 1)],
            group_size=3, key=(0,), concurrency=3,
        )  # fmt: skip
    gc.collect()
    assert sorted(let_go) == [0, 1, 2]
    assert signal.getsignal(signal.SIGINT) is before


async def test_inside_a_loop_and_progress(tiny_tokenizer) -> None:
    seen: list[tuple[int, int]] = []
    with EnvPool(EnvConfig(id="stranger/Echo-v0")) as pool:
        groups = await collect_async(
            pool,
            ScriptedSampler(tiny_tokenizer, all_words),
            AgentEnvLoop(Renderer(tiny_tokenizer), SETTINGS),
            update_groups(0, 0, 2),
            group_size=2,
            key=(0,),
            concurrency=3,
            progress=lambda done, total: seen.append((done, total)),
        )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert all(t.success for group in groups for t in group.trajectories)


def test_a_flow_that_branches_keeps_its_keys_apart(tiny_tokenizer) -> None:
    class Twice(AgentEnvLoop):
        async def run(self, episode: Episode) -> Any:
            return [*await super().run(episode), *await super().run(episode)]

    with EnvPool(EnvConfig(id="stranger/Echo-v0")) as pool:
        (group,) = collect(
            pool,
            ScriptedSampler(tiny_tokenizer, all_words),
            Twice(Renderer(tiny_tokenizer), SETTINGS),
            [GroupSpec(2, 9)],
            group_size=2,
            key=(0,),
            concurrency=2,
        )
    assert [(t.group, t.member) for t in group.trajectories] == [(2, 0), (2, 1), (2, 2), (2, 3)]
