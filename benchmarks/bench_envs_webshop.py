"""What WebShop costs: opening, memory, steps, and search at three sizes, beside a plain scan in the same run.

    .venv/bin/python benchmarks/bench_envs_webshop.py                 some minutes
    .venv/bin/python benchmarks/bench_envs_webshop.py --quick         seconds; small sizes, for a look and for the tests
    .venv/bin/python benchmarks/bench_envs_webshop.py --data FOLDER   over a catalogue of your own

The catalogue is the benchmark's small set where it is found (in the folder AGENTR1_SHARED names, by default `shared`
beside the repository, or where the environment looks), else the bundled shop. Larger ones are synthetic: the real
products' documents again and again, with a tenth of the words replaced by words drawn as often as the catalogue has
them. Times are seconds of this process on the processor, so that other work on the machine hardly changes them.
Nothing is asserted here: the tests do that, with generous bounds.
"""

import argparse
import json
import math
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
from agentr1_envs.webshop.analysis import terms
from agentr1_envs.webshop.baselines import rule_policy
from agentr1_envs.webshop.catalogue import find_catalogue, open_catalogue
from agentr1_envs.webshop.index_store import load_index, save_index
from agentr1_envs.webshop.search_index import K1, B, SearchIndex, build_index
from rich.console import Console
from rich.table import Table

CONSOLE = Console(width=110)
ENV_ID = "agentr1_envs:agentr1/WebShop-v0"
HITS = 50
ENVIRONMENTS = 64
REPLACED = 0.1


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rounds: int
    documents: tuple[int, ...]
    queries: int
    scanned: int
    """Queries that the plain scan answers too."""
    episodes: int


FULL = Sizes(rounds=5, documents=(1_000, 10_000, 100_000), queries=100, scanned=5, episodes=100)
QUICK = Sizes(rounds=1, documents=(100, 300), queries=5, scanned=2, episodes=5)


def small_set() -> Path | None:
    """The folder of the benchmark's small set, if it is here."""
    root = Path(__file__).resolve().parents[1]
    place = Path(os.environ.get("AGENTR1_SHARED", root.parent / "shared")) / "data" / "webshop"
    return place if place.is_dir() else None


def seconds_of(run: Callable[[], object]) -> float:
    """Seconds on the processor that a call takes."""
    started = time.process_time()
    run()
    return time.process_time() - started


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """One table."""
    table = Table(*columns)
    for row in rows:
        table.add_row(*row)
    CONSOLE.print(f"\n{title}", highlight=False)
    CONSOLE.print(table)


def opening(data: str, rounds: int) -> None:
    """Opening the shop in a process of its own, and what the first and further environments hold."""
    probes = [_probe(data) for _ in range(rounds)]
    typical = {name: statistics.median(probe[name] for probe in probes) for name in probes[0]}
    rows = [
        ("construct and first reset, s", f"{typical['seconds']:.2f}", "1.5"),
        ("most memory beyond the imports, 1 environment, MB", f"{typical['first_mb']:.0f}", "80"),
        (f"most memory beyond the imports, {ENVIRONMENTS} environments, MB", f"{typical['all_mb']:.0f}", ""),
        ("memory of each further environment, MB", f"{typical['each_mb']:.2f}", "1"),
    ]
    show("Opening the shop", ("", "measured", "goal, under"), rows)


def _probe(data: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--probe", "--data", data]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def probe(data: str) -> None:
    """Measure one opening in this process, and write the figures as JSON."""
    kept: list[gymnasium.Env[Any, Any]] = []

    def make(seed: int) -> None:
        kept.append(gymnasium.make(ENV_ID, data=data))
        observation, info = kept[-1].reset(seed=seed)
        kept[-1].step(rule_policy(observation, info))

    before = _peak_mb()
    seconds = seconds_of(lambda: make(0))
    first = _peak_mb() - before
    tracemalloc.start()  # memory that opening has freed is used again, so the process need not grow
    for seed in range(1, ENVIRONMENTS):
        make(seed)
    further = tracemalloc.get_traced_memory()[0] / 1e6
    figures = {"first_mb": first, "all_mb": first + further, "each_mb": further / (ENVIRONMENTS - 1)}
    print(json.dumps({"seconds": seconds, **figures}))


def _peak_mb() -> float:
    """The most memory this process has held. Linux' ru_maxrss also counts the process that started this one."""
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def steps(data: str, episodes: int) -> None:
    """Steps of the rule and of the scripted expert, by what they do."""
    env = gymnasium.make(ENV_ID, data=data, split="test")
    times: dict[str, list[float]] = {"search": [], "click": [], "buy": []}

    def step(action: str) -> tuple[Any, ...]:
        kind = "buy" if action == "click[buy now]" else action.partition("[")[0]
        outcome: list[Any] = []
        times[kind].append(seconds_of(lambda: outcome.append(env.step(action))))
        return outcome[0]

    env.reset(seed=0)
    for seed in range(episodes):
        observation, info = env.reset(seed=seed)
        over = False
        while not over:
            observation, _, terminated, truncated, info = step(rule_policy(observation, info))
            over = terminated or truncated
        env.reset(seed=seed)
        for action in env.get_wrapper_attr("demonstration")():
            step(action)
    every = [value for values in times.values() for value in values]
    rows = [
        (name, str(len(values)), f"{1e3 * statistics.median(values):.2f}", f"{1e3 * _quantile(values, 0.95):.2f}")
        for name, values in (*times.items(), ("all", every))
    ]
    show("Steps (the goal is 1 ms in the median)", ("step", "measured", "median, ms", "95 of 100 under, ms"), rows)


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


class PlainScan:
    """BM25 as one writes it first: every document is scored for every query, in Python. Exact lengths, doubles."""

    def __init__(self, documents: Sequence[str]) -> None:
        self.counts = [dict(Counter(terms(document))) for document in documents]
        self.lengths = [sum(count.values()) for count in self.counts]
        self.mean = sum(self.lengths) / len(self.lengths)
        self.holding = Counter(term for count in self.counts for term in count)

    def search(self, query: str, hits: int) -> list[int]:
        """The best documents, ties in document order."""
        asked = Counter(terms(query))
        total = len(self.counts)
        weights = {
            term: repeats * math.log(1 + (total - self.holding[term] + 0.5) / (self.holding[term] + 0.5))
            for term, repeats in asked.items()
        }
        scores: list[float] = []
        for count, length in zip(self.counts, self.lengths, strict=True):
            norm = K1 * (1 - B + B * length / self.mean)
            scores.append(sum(w * count[term] / (count[term] + norm) for term, w in weights.items() if term in count))
        found = [number for number, score in enumerate(scores) if score > 0]
        return sorted(found, key=lambda number: -scores[number])[:hits]


def searching(documents: Sequence[str], queries: Sequence[str], sizes: Sizes) -> None:
    """The index beside the plain scan, in turns, at each size; and the index kept on disk."""
    ranked: list[tuple[str, ...]] = []
    kept: list[tuple[str, ...]] = []
    for count in sizes.documents:
        texts = varied(documents, count, random.Random(0))
        built: list[SearchIndex] = []
        build_seconds = seconds_of(lambda texts=texts, built=built: built.append(build_index(texts)))
        index = built[0]
        fast, slow, same = _in_turns(index, PlainScan(texts), queries, sizes.scanned)
        quick, plain = statistics.median(fast), statistics.median(slow)
        agreed = f"{same} of {len(slow)}"
        ranked.append((f"{count:,}", f"{1e3 * quick:.2f}", f"{1e3 * plain:.1f}", f"{plain / quick:.0f}", agreed))
        kept.append((f"{count:,}", *_on_disk(index, build_seconds, queries[0])))
        print(f"done: search at {count:,} products: {ranked[-1][1:]}, {kept[-1][1:]}", file=sys.stderr, flush=True)
    show(
        f"Search, {HITS} hits, instructions as queries",
        ("products", "index, ms a query", "plain scan, ms", "faster by", "same first hit"),
        ranked,
    )
    show(
        "The index on disk (kept from 10,000 products on)",
        ("products", "built, s", "loaded and first search, s", "faster by", "MB on disk"),
        kept,
    )


def _in_turns(
    index: SearchIndex, scan: PlainScan, queries: Sequence[str], scanned: int
) -> tuple[list[float], list[float], int]:
    """Seconds of each query by either way, and how often both name the same product first."""
    fast: list[float] = []
    slow: list[float] = []
    same = 0
    for number, query in enumerate(queries):
        first: list[int] = []
        fast.append(seconds_of(lambda query=query, first=first: first.extend(index.search(query, HITS)[0][:1])))
        if number < scanned:
            other: list[int] = []
            slow.append(seconds_of(lambda query=query, other=other: other.extend(scan.search(query, HITS)[:1])))
            same += first == other
    return fast, slow, same


def _on_disk(index: SearchIndex, build_seconds: float, query: str) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "index"
        save_index(index, place)
        load_seconds = seconds_of(lambda: load_index(place).search(query, HITS))
        size = sum(path.stat().st_size for path in place.iterdir())
    ratio = f"{build_seconds / load_seconds:.0f}"
    return f"{build_seconds:.1f}", f"{load_seconds:.3f}", ratio, f"{size / 1e6:.0f}"


def varied(documents: Sequence[str], count: int, rng: random.Random) -> list[str]:
    """So many documents: the real ones first, then copies with a tenth of their words drawn from all words."""
    words = [word for document in documents for word in document.split()]
    made = list(documents[:count])
    while len(made) < count:
        copied = documents[len(made) % len(documents)].split()
        made.append(" ".join(rng.choice(words) if rng.random() < REPLACED else word for word in copied))
    return made


def main() -> None:
    """Measure, and show tables."""
    parser = argparse.ArgumentParser(description="What WebShop costs on this machine.")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a look and for the tests")
    parser.add_argument("--data", help="a catalogue, as the environment's data=")
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    data = arguments.data or str(small_set() or find_catalogue(None) or "bundled")
    if arguments.probe:
        probe(data)
        return
    sizes = QUICK if arguments.quick else FULL
    catalogue = open_catalogue(find_catalogue(data))
    goals: Mapping[str, None] = dict.fromkeys(p.instruction for p in catalogue.products if p.instruction)
    facts = f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    CONSOLE.print(f"{len(catalogue.products):,} products of {catalogue.source}; {facts}", highlight=False)
    opening(data, sizes.rounds)
    steps(data, sizes.episodes)
    searching([product.document for product in catalogue.products], list(goals)[: sizes.queries], sizes)


if __name__ == "__main__":
    main()
