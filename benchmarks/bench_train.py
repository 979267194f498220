"""What packing costs and saves in training: the same steps as padded rows, sorted rows, merged lines and prefix trees.

    make bench-train                                               the whole grid, about a quarter of an hour
    .venv/bin/python benchmarks/bench_train.py --quick             a minute; small sizes, for a look and for the tests
    .venv/bin/python benchmarks/bench_train.py --cells 256,16,8    chosen cells: prompt, steps, group

A cell is one group: G trajectories of T steps after a common prompt of P tokens, responses of 32 tokens, observations
of 64, appended to the conversation. Timed is what an update does with it, optimizer aside: packing, the span assertion,
forward, loss and backward. All ways compute the same loss, which is checked, and take turns round by round. Memory is
the peak of the process above what it held before the pass.
"""

import argparse
import ctypes
import os
import platform
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from agentr1_train.attention import use_tree_attention
from agentr1_train.batch import MicroBatch, Row, assert_spans, pack
from agentr1_train.config import AlgorithmConfig, OptimizerConfig
from agentr1_train.losses import policy_loss
from agentr1_train.policy import PolicyModel
from agentr1_train.prefix_tree import plant
from agentr1_train.presets import resolve
from agentr1_train.update import loss_inputs
from rich.console import Console
from rich.table import Table
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

CONSOLE = Console(width=150)
CLOCK = time.perf_counter
SETTINGS = resolve(AlgorithmConfig(preset="grpo", kl="none"), OptimizerConfig(epochs=2))
RESPONSE, OBSERVATION = 32, 64
WAYS = ("padded", "rows", "merged", "tree")
PADDED_TIMED = 2
"""Padded micro-batches all have one shape: this many are timed, and the time is multiplied."""

Cell = tuple[int, int, int]
"""Prompt tokens, steps, trajectories."""

GRID: tuple[Cell, ...] = tuple((p, t, g) for p in (256, 1024) for t in (2, 4, 8, 16) for g in (1, 4, 8))
QUICK: tuple[Cell, ...] = ((64, 2, 1), (64, 4, 4))


@dataclass(frozen=True)
class Shape:
    """A model with random weights, and the tokens of its micro-batches."""

    name: str
    config: LlamaConfig
    budget: int


SMALL = Shape(
    "4 layers x 256, as init-model makes them",
    LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    ),
    budget=16384,
)
SMOLLM2 = Shape(
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
    ),
    budget=4096,
)


@dataclass(frozen=True)
class Outcome:
    """One way in one cell."""

    seconds: float
    memory_mb: float
    tokens: int
    """Computed, padding included."""
    loss: float


def play(cell: Cell, vocabulary: int) -> list[Row]:
    """The rows of a group: every step with its whole history."""
    prompt, steps, members = cell
    draw = random.Random(0)

    def ids(length: int) -> tuple[int, ...]:
        return tuple(draw.randrange(vocabulary) for _ in range(length))

    task, rows = ids(prompt), []
    for member in range(members):
        history = task
        for _ in range(steps):
            said = ids(RESPONSE)
            logp = (-6.0,) * RESPONSE
            row = Row(history, said, (0, member), logp, logp, advantage=draw.uniform(-1, 1))
            rows.append(replace(row, weight=1 / (RESPONSE * steps * members)))
            history = history + said + ids(OBSERVATION)
    return rows


def micro_batches(rows: Sequence[Row], way: str, budget: int) -> list[MicroBatch]:
    """Pack as an update does; ``padded``: every row as wide as the longest, as Agent-R1 trains."""
    if way != "padded":
        packed = pack(rows, budget, packing=way)  # type: ignore[arg-type]
        assert_spans(packed, rows)
        return packed
    longest = max(map(len, rows))
    lines = max(1, budget // longest)
    parts = [rows[at : at + lines] for at in range(0, len(rows), lines)]
    return [_widen(batch, longest) for part in parts for batch in pack(part, len(part) * longest)]


def _widen(batch: MicroBatch, width: int) -> MicroBatch:
    lines, before = batch.input_ids.shape

    def moved(index: torch.Tensor) -> torch.Tensor:
        return index // before * width + index % before

    return replace(
        batch,
        input_ids=functional.pad(batch.input_ids, (0, width - before)),
        position_ids=torch.arange(width).expand(lines, width),
        token_index=moved(batch.token_index),
        target_index=moved(batch.target_index),
        prompt_end=moved(batch.prompt_end),
    )


def update(
    policy: PolicyModel, rows: Sequence[Row], way: str, budget: int, only: int | None = None
) -> tuple[int, float]:
    """One pass of an update; returns the tokens computed and the loss. ``only``: no more micro-batches than this."""
    policy.zero_grad()
    batches = micro_batches(rows, way, budget)
    loss = 0.0
    for batch in batches[:only]:
        output = policy_loss(loss_inputs(policy(batch), batch, has_old_logp=True), SETTINGS)
        output.loss.backward()
        loss += output.loss.item()
    return sum(batch.input_ids.numel() for batch in batches), loss


def measure(shape: Shape, cell: Cell, ways: Sequence[str], rounds: int) -> dict[str, Outcome]:
    """All ways of a cell, taking turns; the median over rounds, after a pass that warms the caches up."""
    torch.manual_seed(0)
    model = LlamaForCausalLM._from_config(shape.config, attn_implementation="sdpa")
    use_tree_attention(model)
    policy = PolicyModel(model)
    rows = play(cell, shape.config.vocab_size)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    memory = dict.fromkeys(ways, 0.0)
    tokens: dict[str, int] = {}
    losses: dict[str, float] = {}
    update(policy, rows[: max(1, len(rows) // 8)], "rows", shape.budget)
    for _ in range(rounds):
        for way in ways:
            count = len(micro_batches(rows, way, shape.budget)) if way == "padded" else 0
            only = PADDED_TIMED if count > PADDED_TIMED else None
            with _Peak() as peak:
                started = CLOCK()
                tokens[way], losses[way] = update(policy, rows, way, shape.budget, only)
                spent = CLOCK() - started
            seconds[way].append(spent * count / only if only else spent)
            memory[way] = max(memory[way], peak.megabytes)
            if only:
                losses.pop(way)
    if max(losses.values()) - min(losses.values()) > 1e-5:
        raise AssertionError(f"the ways disagree on the loss: {losses}")
    return {
        way: Outcome(statistics.median(seconds[way]), memory[way], tokens[way], losses.get(way, float("nan")))
        for way in ways
    }


class _Peak:
    """Peak resident memory of this process inside the block, above what it held at the start (Linux)."""

    megabytes = float("nan")

    def __enter__(self) -> "_Peak":
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        self._before = _status("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.megabytes = (_status("VmHWM") - self._before) / 1024


def _status(field: str) -> float:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field)]
    return float(line.split()[1])


def report(shape: Shape, cells: Sequence[Cell], ways: Sequence[str], rounds: int) -> None:
    """Measure cells and print one line each: ratios of the other ways' time to the tree's, and what was computed.

    Each line is also told when it is known, so that half an hour that is cut short has not been for nothing.
    """
    others = [way for way in ways if way != "tree"]
    columns = ["P, T, G", "tree, s", *(f"{way} / tree" for way in others), "token ratio, rows", "distinct"]
    table = Table(*columns, f"computed / distinct: {', '.join(ways)}", f"peak memory, MB: {', '.join(ways)}")
    CONSOLE.print(f"\n{shape.name}", highlight=False)
    for cell in cells:
        found = measure(shape, cell, ways, rounds)
        rows = play(cell, shape.config.vocab_size)
        distinct = len(plant([row.prompt_ids + row.response_ids for row in rows], 1 << 40)[0])
        figures = (
            ", ".join(map(str, cell)),
            f"{found['tree'].seconds:.2f}",
            *(f"{found[way].seconds / found['tree'].seconds:.2f}" for way in others),
            f"{found['rows'].tokens / found['tree'].tokens:.2f}" if "rows" in found else "",
            f"{distinct:,}",
            ", ".join(f"{found[way].tokens / distinct:.2f}" for way in ways),
            ", ".join(f"{found[way].memory_mb:,.0f}" for way in ways),
        )
        table.add_row(*figures)
        CONSOLE.print(" | ".join(figures), highlight=False)
    CONSOLE.print(table)


def building(cells: Sequence[Cell]) -> None:
    """The share of a pass that packing and the span assertion take."""
    table = Table("P, T, G", "packing, ms", "whole pass, ms", "share")
    for cell in cells:
        rows = play(cell, SMALL.config.vocab_size)
        packing = statistics.median(_packing_time(rows) for _ in range(3))
        whole = measure(SMALL, cell, ("tree",), 1)["tree"].seconds
        table.add_row(", ".join(map(str, cell)), f"{packing * 1e3:.0f}", f"{whole * 1e3:.0f}", f"{packing / whole:.1%}")
    CONSOLE.print("\nBuilding trees", highlight=False)
    CONSOLE.print(table)


def _packing_time(rows: Sequence[Row]) -> float:
    started = CLOCK()
    micro_batches(rows, "tree", SMALL.budget)
    return CLOCK() - started


def read_cell(text: str) -> Cell:
    """P,T,G as numbers above 0."""
    numbers = [int(part) if part.strip().isdigit() else 0 for part in text.split(",")]
    if len(numbers) != 3 or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give prompt tokens, steps and trajectories, as in 256,16,8")
    prompt, steps, members = numbers
    return prompt, steps, members


def read_ways(text: str) -> list[str]:
    """Ways to pack; the tree is what the others are measured against."""
    ways = text.split(",")
    if "tree" not in ways or set(ways) - set(WAYS):
        raise argparse.ArgumentTypeError(f"{text!r}: legal are {', '.join(WAYS)}, and tree must be among them")
    return ways


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--cells", nargs="+", type=read_cell, help="P,T,G ...; default: the grid")
    parser.add_argument("--ways", default=list(WAYS), type=read_ways, help="of " + ", ".join(WAYS) + "; with tree")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true", help="processor time of one thread: for a busy machine")
    parser.add_argument("--smollm2", action="store_true", help="only SmolLM2-135M's shape, by default in 256,4,4")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    torch.set_num_threads(1 if arguments.cpu_time else 2)
    if arguments.cpu_time:
        global CLOCK
        CLOCK = time.process_time
    CONSOLE.print(
        f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, "
        f"Python {platform.python_version()}, torch {torch.__version__}, float32",
        highlight=False,
    )
    ways, cells = arguments.ways, arguments.cells or []
    rounds = 1 if arguments.quick else arguments.rounds
    if arguments.smollm2:
        report(SMOLLM2, cells or [(256, 4, 4)], ways, rounds)
        return
    chosen = cells or (QUICK if arguments.quick else GRID)
    report(SMALL, chosen, ways, rounds)
    if grown := [cell for cell in chosen if cell[2] > 1]:
        building(grown)
    if not arguments.quick and not cells:
        report(SMOLLM2, [(256, 4, 4)], ways, rounds)


if __name__ == "__main__":
    main()
