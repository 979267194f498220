"""What it saves that prompts join a batch of the hf sampler while it is being sampled.

    make bench-rollout                                                 after its other benchmark
    .venv/bin/python benchmarks/bench_joining.py --quick               seconds; a small model
    .venv/bin/python benchmarks/bench_joining.py --latencies 0 --patience 10

One episode in each place. Responses are of unequal length, tools take lognormal time. ``joining`` is what a rollout
does; under ``whole`` a batch is sampled to its end, and prompts that came meanwhile make the next one. With much
patience the passes that the model makes are the same on every machine; with none they depend on time.
"""

import argparse
import asyncio
import random
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from agentr1_train.sampler.base import Prompt, SamplingParams
from agentr1_train.sampler.batching import BatchingSampler
from agentr1_train.sampler.hf import HFSampler
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM

CONSOLE = Console(width=150)
SIGMA = 1.0  # of the tools' latencies


@dataclass(frozen=True)
class Load:
    """A model, and the episodes it plays."""

    name: str
    model: dict[str, Any]
    places: int
    steps: int
    response: float
    """Half of the responses are shorter than this."""
    first: int = 64
    """Tokens of the first prompt; 20 more come with each step."""

    def make(self) -> LlamaForCausalLM:
        torch.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(**self.model, tie_word_embeddings=True, initializer_range=0.06)).eval()

    def budgets(self) -> np.ndarray:
        """Tokens of each response. Shape: (places, steps)."""
        drawn = np.random.default_rng(0).lognormal(np.log(self.response), 0.8, (self.places, self.steps))
        return drawn.round().clip(2, 5 * self.response).astype(int)

    def waits(self, mean_s: float) -> np.ndarray:
        """Seconds of each tool call. Shape: (places, steps)."""
        return np.random.default_rng(1).lognormal(-(SIGMA**2) / 2, SIGMA, (self.places, self.steps)) * mean_s


SMOLLM2 = Load(
    "SmolLM2-135M's shape",
    {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
    places=16,
    steps=6,
    response=24,
)
SMALL = Load(
    "2 layers x 32",
    {
        "vocab_size": 320,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    places=16,
    steps=6,
    response=24,
)


class Whole:
    """The hf sampler, whose batches nobody joins."""

    def __init__(self, sampler: HFSampler) -> None:
        self.policy_version = 0
        self.sample, self.load_weights, self.close = sampler.sample, sampler.load_weights, sampler.close


class Passes:
    """What a model reads: passes over prompts, and rows of each pass that decodes."""

    def __init__(self, model: Any) -> None:
        self.prompts, self.decoding = 0, list[int]()
        model.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, _: Any, args: Any, kwargs: Any) -> None:
        rows, tokens = kwargs["input_ids"].shape
        if tokens == 1:
            self.decoding.append(rows)
        else:
            self.prompts += 1


async def play(load: Load, sampler: Any, mean_s: float, patience_s: float) -> int:
    """Play one episode in each place; return how many tokens were written."""
    batching = BatchingSampler(sampler, patience_s=patience_s)
    draw, budgets, waits = random.Random(1), load.budgets(), load.waits(mean_s)
    task = tuple(draw.randrange(load.model["vocab_size"]) for _ in range(load.first))

    async def place(at: int) -> int:
        history, written = task, 0
        async with batching.slot():
            for step, (budget, wait) in enumerate(zip(budgets[at], waits[at], strict=True)):
                done = await batching.sample(Prompt(history, (0, at, step), int(budget)), SamplingParams())
                history, written = (*history, *done.ids, *task[:20]), written + len(done.ids)
                await asyncio.sleep(wait)
        return written

    try:
        return sum(await asyncio.gather(*map(place, range(load.places))))
    finally:
        await batching.close()


def measure(load: Load, model: LlamaForCausalLM, way: str, mean_s: float, patience_s: float) -> list[str]:
    """Play all episodes one way, and return the cells of its row."""
    hf, passes = HFSampler(model, None), Passes(model)
    hf.sample([Prompt((1,) * 20, (1,), 2)], SamplingParams())
    passes.prompts, passes.decoding = 0, []
    clocks = time.perf_counter(), time.process_time()
    written = asyncio.run(play(load, hf if way == "joining" else Whole(hf), mean_s, patience_s))
    seconds, processor = time.perf_counter() - clocks[0], time.process_time() - clocks[1]
    if written != load.budgets().sum():
        raise AssertionError(f"{way}: {written} tokens of {load.budgets().sum()}")
    rows = f"{statistics.mean(passes.decoding):.1f}"
    return [str(len(passes.decoding)), rows, str(passes.prompts), f"{seconds:.1f}", f"{processor:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small model")
    parser.add_argument("--latencies", default="0,0.05,0.3", help="means, seconds")
    parser.add_argument("--patience", default="10,0", help="seconds")
    parser.add_argument("--ways", default="whole,joining")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    load = SMALL if arguments.quick else SMOLLM2
    model, budgets = load.make(), load.budgets()
    table = Table(
        "patience, s", "tools, s", "way", "decode passes", "rows a pass", "prompt passes", "s", "processor, s"
    )
    for patience_s in arguments.patience.split(","):
        for mean_s in arguments.latencies.split(","):
            for way in arguments.ways.split(","):
                table.add_row(patience_s, mean_s, way, *measure(load, model, way, float(mean_s), float(patience_s)))
    CONSOLE.print(
        f"\n{load.name}: {load.places} episodes of {load.steps} steps, responses of {budgets.min()} to {budgets.max()} "
        f"tokens (mean {budgets.mean():.0f}; {budgets.sum(1).max()} at most in one episode), one thread, one round",
        highlight=False,
    )
    CONSOLE.print(table)


if __name__ == "__main__":
    main()
