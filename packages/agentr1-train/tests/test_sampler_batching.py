"""Batches: together while everybody is in time, and nobody is held for long by who is not."""

import asyncio
import time
from typing import Any

from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.sampler.batching import BatchingSampler
from agentr1_train.sampler.scripted import ScriptedSampler

Batch = tuple[tuple[int, ...], ...]


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

    async def place(batching: BatchingSampler, at: int) -> float:
        started = time.perf_counter()
        async with batching.slot():
            for step, seconds in enumerate(waits[at]):
                await batching.sample(Prompt((5, 6), (at, step), 4), SamplingParams())
                await asyncio.sleep(seconds)
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
    """One place is slow for 4 s; the other takes twenty steps meanwhile, though it was held for half a second first."""
    sampler = Noting(tiny_tokenizer)
    slow, fast = run(sampler, [[4.0, 0.0], [0.0] * 20], patience_s=0.5)
    assert sampler.batches[0] == ((0, 0), (1, 0))
    assert sampler.times[1] - sampler.times[0] >= 0.5
    assert 0.5 <= fast < 4.0 <= slow
    assert sampler.batches[1:20] == [((1, step),) for step in range(1, 20)]


def test_without_patience_nobody_waits(tiny_tokenizer: Any) -> None:
    sampler = Noting(tiny_tokenizer)
    _, fast = run(sampler, [[2.0], [0.0] * 5], patience_s=0.0)
    assert fast < 2.0
    assert sampler.batches[-1] == ((1, 4),)
