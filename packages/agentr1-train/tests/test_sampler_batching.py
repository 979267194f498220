"""Batches: together while everybody is in time, and nobody is held for long by who is not; what joins, and when."""

import asyncio
import contextlib
import random
import time
from typing import Any

import numpy as np
from agentr1_train.errors import ConfigError
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.sampler.batching import BatchingSampler
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.scripted import ScriptedSampler

Batch = tuple[tuple[int, ...], ...]
OTHERS_S = 30.0
"""An environment that answers once the last place is through; after so long at the latest."""


class Noting(ScriptedSampler):
    """Remembers which prompts were sampled together, by key, and when."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer, lambda prompt, key: "x")
        self.batches: list[Batch] = []
        self.times: list[float] = []

    def sample(self, prompts: Any, params: SamplingParams) -> list[Completion]:
        self.times.append(time.perf_counter())
        self.batches.append(tuple(prompt.key for prompt in prompts))
        return super().sample(prompts, params)


def run(sampler: Noting, waits: list[list[float]], **settings: Any) -> list[float]:
    """Places that sample and then let their environment answer, as often as ``waits`` says; seconds that each took."""
    through = asyncio.Event()

    async def place(batching: BatchingSampler, at: int) -> float:
        started = time.perf_counter()
        async with batching.slot():
            for step, seconds in enumerate(waits[at]):
                await batching.sample(Prompt((5, 6), (at, step), 4), SamplingParams())
                with contextlib.suppress(TimeoutError):
                    await (asyncio.wait_for(through.wait(), seconds) if seconds == OTHERS_S else asyncio.sleep(seconds))
        if at == len(waits) - 1:
            through.set()
        return time.perf_counter() - started

    async def all_places() -> list[float]:
        batching = BatchingSampler(sampler, **settings)
        try:
            return await asyncio.gather(*(place(batching, at) for at in range(len(waits))))
        finally:
            await batching.close()

    return asyncio.run(all_places())


def test_while_everybody_is_in_time_batches_are_whole(tiny_tokenizer: Any) -> None:
    sampler = Noting(tiny_tokenizer)
    run(sampler, [[0.0, 0.02, 0.0], [0.02, 0.0, 0.0], [0.01, 0.01, 0.0]], patience_s=30)
    assert sampler.batches == [tuple((at, step) for at in range(3)) for step in range(3)]


def test_an_environment_that_is_late_costs_the_others_its_patience_once(tiny_tokenizer: Any) -> None:
    """One place is slow; the other takes twenty steps meanwhile, though it was held for a second before the first."""
    sampler = Noting(tiny_tokenizer)
    slow, fast = run(sampler, [[OTHERS_S, 0.0], [0.0] * 20], patience_s=1.0)
    assert sampler.batches[0] == ((0, 0), (1, 0))
    assert sampler.times[1] - sampler.times[0] >= 1.0
    assert 1.0 <= fast < 15.0  # not a second for each step
    assert fast <= slow < OTHERS_S
    assert sampler.batches[1:20] == [((1, step),) for step in range(1, 20)]


def test_without_patience_nobody_waits(tiny_tokenizer: Any) -> None:
    sampler = Noting(tiny_tokenizer)
    _, fast = run(sampler, [[OTHERS_S], [0.0] * 5], patience_s=0.0)
    assert fast < OTHERS_S
    assert sampler.batches[-1] == ((1, 4),)


class Whole:
    """The hf sampler, one batch at a time."""

    def __init__(self, sampler: HFSampler) -> None:
        self.policy_version = 0
        self.sample = sampler.sample
        self.load_weights, self.close = sampler.load_weights, sampler.close


class Passes:
    """The rows that a model reads in each pass, and how many tokens of each."""

    def __init__(self, model: Any) -> None:
        self.shapes: list[tuple[int, ...]] = []
        model.register_forward_pre_hook(
            lambda _, args, kwargs: self.shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
        )

    @property
    def decoding(self) -> int:
        return sum(tokens == 1 for _, tokens in self.shapes)


Played = dict[tuple[int, ...], Completion]


def play(sampler: Any, budgets: list[list[int]], waits: Any = lambda: 0.0, **settings: Any) -> Played:
    """Places with a response of so many tokens in each step, whose environments take ``waits()`` seconds."""
    played: Played = {}

    async def place(batching: BatchingSampler, at: int) -> None:
        async with batching.slot():
            history = (5 + at, 6, 7)
            for step, budget in enumerate(budgets[at]):
                prompt = Prompt(history, (at, step), budget)
                played[prompt.key] = await batching.sample(prompt, SamplingParams())
                history += (*played[prompt.key].ids, 8)
                await asyncio.sleep(waits())

    async def all_places() -> None:
        batching = BatchingSampler(sampler, **settings)
        try:
            await asyncio.gather(*(place(batching, at) for at in range(len(budgets))))
        finally:
            await batching.close()

    asyncio.run(all_places())
    return played


def unequal(places: int, steps: int, seed: int = 0) -> list[list[int]]:
    """Response lengths between 2 and 40 tokens, most of them short."""
    drawn = np.random.default_rng(seed).lognormal(2, 0.8, (places, steps)).round().clip(2, 40)
    return [[int(tokens) for tokens in row] for row in drawn]


def test_prompts_that_join_take_fewer_passes_than_batches_one_after_another(
    tiny_model: Any, tiny_tokenizer: Any
) -> None:
    budgets = unequal(16, 6)
    passes = Passes(tiny_model)
    whole = play(Whole(HFSampler(tiny_model, tiny_tokenizer)), budgets, patience_s=30)
    before, passes.shapes = passes.decoding, []
    joined = play(HFSampler(tiny_model, tiny_tokenizer), budgets, patience_s=30)
    assert {key: done.ids for key, done in joined.items()} == {key: done.ids for key, done in whole.items()}
    assert passes.decoding <= 0.75 * before
    assert passes.decoding >= max(sum(row) - len(row) for row in budgets)  # an episode cannot do with less


def test_while_everybody_is_in_time_what_joins_does_not_depend_on_it(tiny_model: Any, tiny_tokenizer: Any) -> None:
    budgets = unequal(6, 6, seed=1)
    passes, runs = Passes(tiny_model), []
    for seed in range(3):
        draw = random.Random(seed)
        passes.shapes = []
        played = play(
            HFSampler(tiny_model, tiny_tokenizer), budgets, lambda draw=draw: draw.random() * 0.02, patience_s=30
        )
        runs.append((passes.shapes, played))  # tokens and log-probabilities to the bit
    assert runs[0] == runs[1] == runs[2]
    assert len({rows for rows, tokens in runs[0][0] if tokens == 1}) > 1


def test_prompts_join_a_batch_that_nobody_is_held_back_for(tiny_model: Any, tiny_tokenizer: Any) -> None:
    order = list(play(HFSampler(tiny_model, tiny_tokenizer), [[300], [3] * 8], patience_s=0.0))
    assert order[-1] == (0, 0)
    assert len(order) == 9


def test_a_cancelled_episode_makes_room_and_changes_nothing_for_others(tiny_model: Any, tiny_tokenizer: Any) -> None:
    prompts = [Prompt((5, 6, at), (at, 0), 1500 if at == 1 else 40) for at in range(3)]
    passes = Passes(tiny_model)

    async def main() -> list[Any]:
        batching = BatchingSampler(HFSampler(tiny_model, tiny_tokenizer), patience_s=0.0)
        tasks = [asyncio.create_task(batching.sample(prompt, SamplingParams())) for prompt in prompts]
        while passes.decoding < 5:
            await asyncio.sleep(0.001)
        tasks[1].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        later = await batching.sample(prompts[2], SamplingParams())
        await batching.close()
        return [*found, later]

    first, cancelled, third, later = asyncio.run(main())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert passes.decoding < 1000
    alone = HFSampler(tiny_model, tiny_tokenizer).sample([prompts[0], prompts[2]], SamplingParams())
    assert [first.ids, third.ids] == [done.ids for done in alone]
    assert later.ids == third.ids


def test_an_error_is_the_prompts_own(tiny_model: Any, tiny_tokenizer: Any) -> None:
    async def main() -> list[Any]:
        batching = BatchingSampler(HFSampler(tiny_model, tiny_tokenizer))
        prompts = [Prompt((5,) * length, (length, 0), 20) for length in (3, 2040, 4)]
        try:
            asked = (batching.sample(prompt, SamplingParams()) for prompt in prompts)
            return await asyncio.gather(*asked, return_exceptions=True)
        finally:
            await batching.close()

    one, other, third = asyncio.run(main())
    assert isinstance(other, ConfigError)
    assert len(one.ids) == len(third.ids) == 20


def test_requests_of_one_place_are_answered_together(tiny_model: Any, tiny_tokenizer: Any) -> None:
    """Otherwise its next prompt would come when it likes: the place is neither in nor away."""
    ends: list[int] = []

    async def ask(batching: BatchingSampler, at: int, tokens: int) -> None:
        await batching.sample(Prompt((5, at), (at, 0), tokens), SamplingParams())
        ends.append(at)

    async def place(batching: BatchingSampler, first: int) -> None:
        async with batching.slot():
            await asyncio.gather(ask(batching, first, 4), ask(batching, first + 1, 60))

    async def main() -> None:
        batching = BatchingSampler(HFSampler(tiny_model, tiny_tokenizer), patience_s=0.0)
        async with batching.slot():
            alone = asyncio.create_task(ask(batching, 2, 30))
            await asyncio.gather(asyncio.create_task(place(batching, 0)), alone)
        await batching.close()

    asyncio.run(main())
    assert ends == [2, 0, 1]


def test_other_parameters_wait_for_the_next_batch(tiny_model: Any, tiny_tokenizer: Any) -> None:
    sampler = HFSampler(tiny_model, tiny_tokenizer)
    prompts = [Prompt((5, 6, at), (at, 0), 20) for at in range(6)]
    params = [SamplingParams(0.0) if at % 2 else SamplingParams(1.0, stop_ids=tuple(range(60))) for at in range(6)]

    async def main() -> list[Completion]:
        batching = BatchingSampler(sampler, patience_s=0.0)
        try:
            return await asyncio.gather(*map(batching.sample, prompts, params))
        finally:
            await batching.close()

    done = asyncio.run(main())
    alone = [HFSampler(tiny_model, tiny_tokenizer).sample([p], q)[0] for p, q in zip(prompts, params, strict=True)]
    assert [completion.ids for completion in done] == [completion.ids for completion in alone]
