"""What a rollout costs: episodes that wait for nobody beside a lockstep vector, and the hf sampler beside ``generate``.

    make bench-rollout                                             both parts, some twenty minutes
    .venv/bin/python benchmarks/bench_rollout.py --quick           a minute; small sizes, for a look and for the tests
    .venv/bin/python benchmarks/bench_rollout.py --part sampler --ways sampler,batched --cpu-time

**episodes**: an environment whose tool takes lognormal time, a scripted model, 32 episodes of 6 steps in 32 places or
fewer. ``lockstep`` is a vector: all places reset together, and each step waits for the slowest. ``ideal`` is computed:
the tool calls as long as they took when episodes were played, each place taking the next episode at once, and nothing
else taking any time.

**sampler**: SmolLM2-135M's shape with random weights; a group of episodes whose prompts grow with each step, greedy.
``batched`` is transformers' ``generate`` for all episodes of a step at once, padded left; ``single`` calls it for one
episode after another. All ways must write the same tokens.
"""

import argparse
import asyncio
import heapq
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from agentr1_train.config import EnvConfig, RolloutConfig
from agentr1_train.env_pool import EnvHandle, EnvPool
from agentr1_train.flow import AgentEnvLoop
from agentr1_train.init_model import train_tokenizer
from agentr1_train.renderer import Renderer
from agentr1_train.rollout import GroupSpec, collect
from agentr1_train.sampler.base import Prompt, SamplingParams
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.scripted import ScriptedSampler
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM

CONSOLE = Console(width=150)
CLOCK = time.perf_counter
EPISODES, STEPS, MEAN_S, SIGMA = 32, 6, 0.3, 1.0


# --- episodes ------------------------------------------------------------------------------------------------------


def latencies(seed: int, mean_s: float) -> np.ndarray:
    """Seconds of an episode's tool calls: lognormal. Shape: (STEPS,)."""
    return np.random.default_rng(seed).lognormal(np.log(mean_s) - SIGMA**2 / 2, SIGMA, STEPS)


TOOK: dict[int, float] = {}
"""Seed -> seconds that the tool calls of its last episode took: a busy machine sleeps longer than it is told to."""


class LatencyEnv(gymnasium.Env[str, str]):
    """Every step is a call to a tool that takes its time."""

    observation_space = gymnasium.spaces.Text(100)
    action_space = gymnasium.spaces.Text(100)

    def __init__(self, mean_s: float) -> None:
        self.mean_s = mean_s

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        assert seed is not None
        self.seed, self.waits = seed, list(latencies(seed, self.mean_s))
        TOOK[seed] = 0.0
        return "go", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        started = time.perf_counter()
        time.sleep(self.waits.pop(0))
        TOOK[self.seed] += time.perf_counter() - started
        return "on", 0.0, not self.waits, False, {}


gymnasium.register("bench/Latency-v0", entry_point=LatencyEnv)


class Playground:
    """The same pool, tokenizer and scripted sampler for both ways."""

    def __init__(self, mean_s: float) -> None:
        tokenizer = train_tokenizer(["go on and call the tool"], 300)
        self.pool = EnvPool(EnvConfig(id="bench/Latency-v0", kwargs={"mean_s": mean_s}))
        self.sampler = ScriptedSampler(tokenizer, lambda prompt, key: "call")
        self.flow = AgentEnvLoop(Renderer(tokenizer), RolloutConfig(max_response_tokens=16))
        self.prompt = tuple(tokenizer.encode("go"))

    def lockstep(self, seeds: Sequence[int], places: int) -> None:
        """A vector of ``places`` environments, as often as it takes."""
        asyncio.run(self._lockstep(seeds, places))

    async def _lockstep(self, seeds: Sequence[int], places: int) -> None:
        vector = [await self.pool.acquire() for _ in range(places)]
        for at in range(0, len(seeds), places):
            wave = seeds[at : at + places]
            await asyncio.gather(*(env.reset(seed) for env, seed in zip(vector, wave, strict=False)))
            for step in range(STEPS):
                prompts = [Prompt(self.prompt, (seed, step), 16) for seed in wave]
                self.sampler.sample(prompts, SamplingParams())
                await asyncio.gather(*(_step(env) for env, _ in zip(vector, wave, strict=False)))
        for env in vector:
            self.pool.release(env)

    def episodes(self, seeds: Sequence[int], places: int) -> None:
        """What a rollout does."""
        groups = [GroupSpec(index, seed) for index, seed in enumerate(seeds)]
        played = collect(self.pool, self.sampler, self.flow, groups, group_size=1, key=(0,), concurrency=places)
        ends = {(len(item.steps), item.end_reason) for group in played for item in group.trajectories}
        if ends != {(STEPS, "terminated")}:
            raise AssertionError(f"episodes ended otherwise: {ends}")


async def _step(env: EnvHandle) -> None:
    await env.step("call")


def ideal(episodes: Sequence[float], places: int) -> float:
    """Seconds until the last of ``places`` is done, each taking the next episode as soon as it is free."""
    free = [0.0] * places
    for seconds in episodes:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def episodes_part(places: Sequence[int], rounds: int, mean_s: float) -> None:
    """Both ways take turns; each round has latencies of its own."""
    table = Table(
        "places", "lockstep, s", "episodes, s", "ideal, s", "lockstep / episodes", "ideal / episodes", "bound"
    )
    ground = Playground(mean_s)
    for count in places:
        found: dict[str, list[float]] = {"lockstep": [], "episodes": [], "ideal": []}
        for number in range(rounds):
            seeds = range(1000 * number, 1000 * number + EPISODES)
            for name, way in (("lockstep", ground.lockstep), ("episodes", ground.episodes)):
                started = time.perf_counter()
                way(seeds, count)
                found[name].append(time.perf_counter() - started)
            found["ideal"].append(ideal([TOOK[seed] for seed in seeds], count))
        total = {name: sum(seconds) for name, seconds in found.items()}
        table.add_row(
            str(count),
            *(f"{total[name] / rounds:.2f}" for name in ("lockstep", "episodes", "ideal")),
            f"{total['lockstep'] / total['episodes']:.2f}",
            f"{total['ideal'] / total['episodes']:.2f}",
            f"{total['lockstep'] / total['ideal']:.2f}",
        )
    ground.pool.close()
    CONSOLE.print(
        f"\n{EPISODES} episodes of {STEPS} steps, tools of {mean_s * 1e3:g} ms (lognormal, sigma {SIGMA:g}), means of "
        f"{rounds} rounds; bound: lockstep / ideal, the most there is to win",
        highlight=False,
    )
    CONSOLE.print(table)


# --- sampler -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """A group of episodes, and the model that plays them."""

    name: str
    config: LlamaConfig
    episodes: int
    steps: int
    first: int
    """Tokens of the first prompt, the same for all."""
    last: int
    """Tokens of the longest episode's last prompt; the others have down to a fifth less of what comes between."""
    response: int


SMOLLM2 = Load(
    "SmolLM2-135M's shape",
    LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        initializer_range=0.06,
    ),
    episodes=8,
    steps=8,
    first=256,
    last=1500,
    response=32,
)
SMALL = Load(
    "4 layers x 192",
    LlamaConfig(
        vocab_size=2048,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        initializer_range=0.06,
    ),
    episodes=4,
    steps=4,
    first=64,
    last=300,
    response=8,
)

Way = Callable[[Any, list[tuple[int, ...]], int, int], list[tuple[int, ...]]]
"""(model, prompts, step, tokens) -> responses."""


def observations(load: Load) -> list[list[tuple[int, ...]]]:
    """For each episode what comes after each response but the last."""
    draw = random.Random(0)
    room = (load.last - load.first) / (load.steps - 1) - load.response
    found = []
    for episode in range(load.episodes):
        length = round(room * (1 - 0.2 * episode / max(1, load.episodes - 1)))
        found.append(
            [tuple(draw.randrange(load.config.vocab_size) for _ in range(length)) for _ in range(load.steps - 1)]
        )
    return found


def play(load: Load, model: Any, way: Way) -> tuple[list[list[tuple[int, ...]]], int]:
    """Play all episodes step by step; return what was written at each step, and the tokens of the last prompts."""
    draw = random.Random(1)
    task = tuple(draw.randrange(load.config.vocab_size) for _ in range(load.first))
    prompts, after, said = [task] * load.episodes, observations(load), []
    for step in range(load.steps):
        said.append(way(model, prompts, step, load.response))
        if step + 1 < load.steps:
            prompts = [prompts[i] + said[-1][i] + after[i][step] for i in range(load.episodes)]
    return said, max(map(len, prompts))


def batched(model: Any, prompts: list[tuple[int, ...]], step: int, tokens: int) -> list[tuple[int, ...]]:
    """``generate`` for all prompts, padded left, with its own cache."""
    width = max(map(len, prompts))
    ids = torch.tensor([(0,) * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=tokens,
            do_sample=False,
            use_cache=True,
            eos_token_id=None,
            pad_token_id=0,
        )
    return [tuple(row) for row in out[:, width:].tolist()]


def single(model: Any, prompts: list[tuple[int, ...]], step: int, tokens: int) -> list[tuple[int, ...]]:
    """``generate`` for one prompt after another."""
    return [batched(model, [prompt], step, tokens)[0] for prompt in prompts]


def sampler_way(model: LlamaForCausalLM) -> Way:
    """The hf sampler, which has not seen any of it; it changes how the model attends, so it has a model of its own."""
    sampler = HFSampler(model, None)

    def way(_: Any, prompts: list[tuple[int, ...]], step: int, tokens: int) -> list[tuple[int, ...]]:
        given = [Prompt(prompt, (0, member, step), tokens) for member, prompt in enumerate(prompts)]
        return [done.ids for done in sampler.sample(given, SamplingParams(temperature=0.0))]

    return way


def sampler_part(load: Load, ways: Sequence[str], rounds: int) -> None:
    """All ways take turns; medians over rounds, after a short step that warms the caches up."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(load.config).eval()
    ours = LlamaForCausalLM(load.config).eval()
    ours.load_state_dict(model.state_dict())
    plain: dict[str, Way] = {"batched": batched, "single": single}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    written: dict[str, list[list[tuple[int, ...]]]] = {}
    longest = 0
    for _ in range(rounds):
        for way in ways:
            run = plain.get(way) or sampler_way(ours)
            run(model, [(1,) * 20] * 2, -1, 2)
            started = CLOCK()
            written[way], longest = play(load, model, run)
            seconds[way].append(CLOCK() - started)
    table = Table("way", "s", "time over the sampler's", "same tokens")
    least = statistics.median(seconds["sampler"])
    for way in ways:
        taken = statistics.median(seconds[way])
        table.add_row(way, f"{taken:.1f}", f"{taken / least:.2f}", _agreement(written[way], written["sampler"]))
    CONSOLE.print(
        f"\n{load.name}: {load.episodes} episodes of {load.steps} steps, prompts of {load.first} to {longest} tokens, "
        f"responses of {load.response}, greedy, medians of {rounds} rounds",
        highlight=False,
    )
    CONSOLE.print(table)


def _agreement(one: list[list[tuple[int, ...]]], other: list[list[tuple[int, ...]]]) -> str:
    pairs = [pair for mine, theirs in zip(one, other, strict=True) for pair in zip(mine, theirs, strict=True)]
    return f"{sum(mine == theirs for mine, theirs in pairs)} of {len(pairs)} responses"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--part", choices=("episodes", "sampler"), help="one part only")
    parser.add_argument("--ways", default="sampler,batched,single", help="of the part sampler; sampler is needed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true", help="part sampler: processor time of one thread")
    arguments = parser.parse_args()
    torch.set_num_threads(1 if arguments.cpu_time else 2)
    if arguments.cpu_time:
        global CLOCK
        CLOCK = time.process_time
    CONSOLE.print(
        f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, "
        f"Python {platform.python_version()}, torch {torch.__version__}, float32",
        highlight=False,
    )
    rounds = 1 if arguments.quick else arguments.rounds
    if arguments.part != "sampler":
        episodes_part((32, 8), rounds, MEAN_S / 10 if arguments.quick else MEAN_S)
    if arguments.part != "episodes":
        sampler_part(SMALL if arguments.quick else SMOLLM2, arguments.ways.split(","), rounds)


if __name__ == "__main__":
    main()
