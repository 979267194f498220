"""The benchmarks run: at small sizes, to the end, with a figure in every table."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_benchmark_of_tools_runs() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks/bench_tools.py", "--quick"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for row in (
        "box, a worker process",
        "box, answered from the cache",
        "cache on",
        "HTTP retriever, 5 ms a request",
        "wiki_search's index",
        "the loop, from an event loop",
    ):
        assert row in done.stdout


@pytest.mark.slow
def test_the_benchmark_of_alfworld_runs() -> None:
    """In CI beside the original engine: it refuses texts that differ."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks/bench_envs_alfworld.py", "--quick"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for row in ("load and reset", "step", "64 environments in one process"):
        assert row in done.stdout


def test_the_benchmark_of_webshop_runs() -> None:
    command = [sys.executable, ROOT / "benchmarks/bench_envs_webshop.py", "--quick", "--data", "bundled"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for row in ("construct and first reset, s", "64 environments, MB", "buy", "plain scan, ms", "MB on disk"):
        assert row in done.stdout
    assert done.stdout.count("2 of 2") == 2


def test_the_benchmark_of_wrappers_runs() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks/bench_envs_wrappers.py", "--quick"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for row in ("ToolEnv", "ALFWorld", "WebShop", "bare, once more", "four + window of 3", "stacks missed the goal"):
        assert row in done.stdout


def test_the_training_benchmark_measures_what_it_shows() -> None:
    """It compares the losses of all ways itself, and stops where they differ."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks/bench_train.py", "--cells", "40,2,2", "--cpu-time", "--rounds", "1"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "40, 2, 2" in done.stdout
    assert "Building trees" in done.stdout
