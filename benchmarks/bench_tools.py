"""What a tool box costs, and what it saves: ratios, side by side in one run, on this machine.

    make bench-tools                                        all of it, a few minutes
    .venv/bin/python benchmarks/bench_tools.py --quick      seconds; small sizes, for a look and for the tests

Variants of one comparison take turns, round by round, so that a busy moment hits them alike; a figure is the median
over rounds. Nothing is asserted here: the tests do that, with generous bounds.
"""

import argparse
import asyncio
import importlib
import json
import os
import platform
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agentr1_tools import BaseTool, ToolBox, ToolCall, tool
from agentr1_tools.calculator import Calculator
from agentr1_tools.wiki_index import Passage, WikiIndex
from agentr1_tools.wiki_search import WikiSearch
from rich.console import Console
from rich.table import Table

CONSOLE = Console(width=110)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rounds: int
    calls: int
    passages: tuple[int, ...]
    queries: int
    concurrent: int


FULL = Sizes(rounds=7, calls=300, passages=(10_000, 100_000), queries=100, concurrent=200)
QUICK = Sizes(rounds=2, calls=20, passages=(500, 1_000), queries=10, concurrent=20)


def side_by_side(variants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each variant; they take turns, after one round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds + 1):
        for name, run in variants.items():
            started = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """One table."""
    table = Table(*columns)
    for row in rows:
        table.add_row(*row)
    CONSOLE.print(f"\n{title}", highlight=False)
    CONSOLE.print(table)


def overhead(sizes: Sizes) -> None:
    """A call through the box against the bare function, for each way a tool can run."""

    class OnLoop(BaseTool):
        name, description, cooperative, cacheable = "calculator", "As the calculator, on the loop.", True, False
        parameters = Calculator.parameters

        async def execute(self, params: dict[str, Any]) -> Any:
            return Calculator().execute(params)

    bare, params = Calculator(), {"expression": "12 * (3 + 4)"}
    call = ToolCall("calculator", params)
    with ExitStack() as stack:
        boxes = {
            "box, cooperative (a thread)": ToolBox([_calculator(cooperative=True)]),
            "box, cooperative and async (the loop)": ToolBox([OnLoop()]),
            "box, a worker process": ToolBox([_calculator(cooperative=False)]),
            "box, answered from the cache": ToolBox([Calculator()]),
        }
        variants: dict[str, Callable[[], object]] = {"bare function": _times(sizes.calls, lambda: bare.execute(params))}
        for name, box in boxes.items():
            stack.enter_context(box)
            variants[name] = _times(sizes.calls, lambda box=box: box.call(call))
        seconds = side_by_side(variants, sizes.rounds)
    base = seconds["bare function"]
    rows = [
        (
            name,
            f"{1e6 * value / sizes.calls:.1f}",
            f"{1e6 * (value - base) / sizes.calls:+.1f}",
            f"{value / base:.1f} x",
        )
        for name, value in seconds.items()
    ]
    show("One call of the calculator", ("way", "µs a call", "beyond the function", "ratio"), rows)


def _calculator(*, cooperative: bool) -> BaseTool:
    made = Calculator()
    made.cooperative, made.cacheable = cooperative, False
    return made


def _times(count: int, run: Callable[[], object]) -> Callable[[], object]:
    def repeat() -> None:
        for _ in range(count):
            run()

    return repeat


def cache(sizes: Sizes, index: WikiIndex, queries: Sequence[str]) -> None:
    """Searches of which four in five were asked before, with the cache and without."""
    draw = random.Random(0)
    distinct = [f"{query} {number}" for number, query in enumerate(queries[: max(sizes.calls // 5, 1)] * 5)]
    asked = distinct[: sizes.calls // 5]
    asked += [draw.choice(asked) for _ in range(sizes.calls - len(asked))]
    draw.shuffle(asked)

    def run(cache_size: int) -> None:
        with ToolBox([WikiSearch(index=index, timeout=30)], cache_size=cache_size) as box:
            for query in asked:
                box.call(ToolCall("wiki_search", {"query": query}))

    seconds = side_by_side({"cache off": lambda: run(0), "cache on": lambda: run(4096)}, sizes.rounds)
    rows = [
        (name, f"{1e3 * value / sizes.calls:.3f}", f"{seconds['cache off'] / value:.2f} x")
        for name, value in seconds.items()
    ]
    show(f"wiki_search, {len(index.passages):,} passages, 80 % repeats", ("", "ms a call", "faster by"), rows)


class _Unbatched(WikiSearch):
    """The search call by call."""

    batches = False


def _search(index: WikiIndex | None = None, *, url: str | None = None, batches: bool) -> WikiSearch:
    search = (WikiSearch if batches else _Unbatched)(index=index, retriever_url=url, timeout=30)
    search.cacheable = False  # so that every call is searched
    return search


def batching(sizes: Sizes, index: WikiIndex, queries: Sequence[str]) -> None:
    """Many episodes search at once: call by call, or in the batches that form."""
    calls = [ToolCall("wiki_search", {"query": queries[n % len(queries)]}) for n in range(sizes.concurrent)]
    rows: list[tuple[str, ...]] = []
    with ExitStack() as stack:
        url = stack.enter_context(_retriever(index))
        sources = {
            f"BM25 in memory, {len(index.passages):,} passages": {"index": index},
            "HTTP retriever, 5 ms a request": {"url": url},
        }
        for source, given in sources.items():
            boxes = {
                name: stack.enter_context(ToolBox([_search(**given, batches=name == "in batches")]))
                for name in ("call by call", "in batches")
            }
            variants = {name: (lambda box=box: box.call_many(calls)) for name, box in boxes.items()}
            seconds = side_by_side(variants, sizes.rounds)
            ratio = f"{seconds['call by call'] / seconds['in batches']:.2f} x"
            rows.append((source, *(f"{1e3 * value:.0f}" for value in seconds.values()), ratio))
    columns = ("source", "call by call, ms", "in batches, ms", "faster by")
    show(f"{sizes.concurrent} searches at once", columns, rows)


@contextmanager
def _retriever(index: WikiIndex) -> Iterator[str]:
    """A retriever on loopback that serves one request at a time and spends 5 ms on each, beside the search."""
    turn = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with turn:
                time.sleep(0.005)
                found = [[_document(hit) for hit in index.search(query, body["topk"])] for query in body["queries"]]
            payload = json.dumps({"result": found}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: Any) -> None:
            """Stay silent."""

    class Server(ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 512

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _document(hit: Any) -> dict[str, Any]:
    passage = hit.passage
    return {"document": {"title": passage.title, "text": passage.text, "id": passage.id}, "score": hit.score}


def bm25(sizes: Sizes, corpora: Mapping[int, Sequence[Passage]], queries: Sequence[str]) -> None:
    """The index beside the package it is built on, used as its documentation shows."""
    package = importlib.import_module("bm25s")
    rows: list[tuple[str, ...]] = []
    for count, passages in corpora.items():
        started = time.perf_counter()
        index = WikiIndex(passages)
        built = time.perf_counter() - started
        started = time.perf_counter()
        texts = [f"{passage.title} {passage.title} {passage.text}" for passage in passages]
        alone = package.BM25(k1=1.5, b=0.75, method="lucene")
        alone.index(package.tokenize(texts, stopwords=None, show_progress=False), show_progress=False)
        built_alone = time.perf_counter() - started

        def ask_alone(query: str, alone: Any = alone) -> Any:
            tokens = package.tokenize(query, stopwords=None, show_progress=False)
            return alone.retrieve(tokens, k=5, show_progress=False)

        seconds = side_by_side(
            {
                "bm25s alone": lambda ask=ask_alone: [ask(query) for query in queries],
                "wiki_search's index": lambda index=index: [index.search(query, 5) for query in queries],
            },
            sizes.rounds,
        )
        for (name, value), build in zip(seconds.items(), (built_alone, built), strict=True):
            ratio = f"{seconds['bm25s alone'] / value:.2f} x"
            rows.append((f"{count:,}", name, f"{build:.1f}", f"{1e3 * value / len(queries):.2f}", ratio))
    show("BM25, five best of a query", ("passages", "", "built in, s", "ms a query", "faster by"), rows)


def concurrency(sizes: Sizes) -> None:
    """Calls of many episodes at once, each of which waits 50 ms: what the box adds to the latency."""

    @tool(cooperative=True, timeout=10, cacheable=False, name="wait")
    def wait_on_a_thread() -> None:
        """Wait."""
        time.sleep(0.05)

    @tool(cooperative=True, timeout=10, cacheable=False, name="wait")
    async def wait_on_the_loop() -> None:
        """Wait."""
        await asyncio.sleep(0.05)

    calls = [ToolCall("wait")] * sizes.concurrent
    with ToolBox([wait_on_a_thread]) as threads, ToolBox([wait_on_the_loop]) as loop:
        seconds = side_by_side(
            {
                "threads, from a thread": lambda: threads.call_many(calls),
                "threads, from an event loop": lambda: asyncio.run(threads.acall_many(calls)),
                "the loop, from an event loop": lambda: asyncio.run(loop.acall_many(calls)),
            },
            sizes.rounds,
        )
    rows = [(name, f"{1e3 * value:.0f}", f"{1e3 * (value - 0.05):.0f}") for name, value in seconds.items()]
    show(f"{sizes.concurrent} calls at once, 50 ms each", ("way", "all done after, ms", "beyond the latency, ms"), rows)


def made_up_corpus(count: int) -> list[Passage]:
    """Passages of about 80 words that are drawn as words are in a language: a few often, most rarely."""
    draw = random.Random(count)
    words = [f"w{number}" for number in range(50_000)]
    weights = [1 / (rank + 2.7) for rank in range(len(words))]
    drawn = draw.choices(words, weights, k=count * 84)
    return [
        Passage(n, " ".join(drawn[84 * n : 84 * n + 4]), (" ".join(drawn[84 * n + 4 : 84 * (n + 1)]),))
        for n in range(count)
    ]


def questions(passages: Sequence[Passage], count: int) -> list[str]:
    """Eight words each, out of passages spread over the corpus."""
    step = max(len(passages) // count, 1)
    return [" ".join(passage.text.split()[:8]) for passage in passages[::step][:count]]


def machine() -> str:
    """Where this ran."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{platform.machine()}, {cores} cores, {platform.system()}, Python {platform.python_version()}"


def main(argv: Sequence[str] | None = None) -> None:
    """Run every comparison."""
    parser = argparse.ArgumentParser(description="What a tool box costs, and what it saves.")
    parser.add_argument("--quick", action="store_true", help="small sizes: seconds, and figures of little weight")
    sizes = QUICK if parser.parse_args(argv).quick else FULL
    CONSOLE.print(f"{machine()}; medians of {sizes.rounds} rounds")
    overhead(sizes)
    concurrency(sizes)
    corpora = {count: made_up_corpus(count) for count in sizes.passages}
    smallest = corpora[sizes.passages[0]]
    queries = questions(smallest, sizes.queries)
    index = WikiIndex(smallest)
    cache(sizes, index, queries)
    batching(sizes, index, queries)
    bm25(sizes, corpora, queries)


if __name__ == "__main__":
    main()
