"""The benchmarks run: at small sizes, to the end, with a figure in every table."""

import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import free_port

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.timeout(1800)


def output_of(benchmark: str, *arguments: str, folder: Path | None = None) -> str:
    """What a benchmark prints, run in a folder; it must end well."""
    command = [sys.executable, ROOT / "benchmarks" / benchmark, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_benchmark_of_tools_runs() -> None:
    output = output_of("bench_tools.py", "--quick")
    for row in (
        "box, a worker process",
        "box, answered from the cache",
        "cache on",
        "HTTP retriever, 5 ms a request",
        "wiki_search's index",
        "the loop, from an event loop",
    ):
        assert row in output


@pytest.mark.slow
@pytest.mark.ranks
def test_the_benchmark_of_alfworld_runs() -> None:
    """In CI beside the original engine: it refuses texts that differ."""
    output = output_of("bench_envs_alfworld.py", "--quick")
    for row in ("load and reset", "step", "64 environments in one process"):
        assert row in output


def test_the_benchmark_of_webshop_runs() -> None:
    output = output_of("bench_envs_webshop.py", "--quick", "--data", "bundled")
    for row in ("construct and first reset, s", "64 environments, MB", "buy", "plain scan, ms", "MB on disk"):
        assert row in output
    assert output.count("2 of 2") == 2


def test_the_benchmark_of_wrappers_runs() -> None:
    output = output_of("bench_envs_wrappers.py", "--quick")
    for row in ("ToolEnv", "ALFWorld", "WebShop", "bare, once more", "four + window of 3", "stacks missed the goal"):
        assert row in output


def test_the_training_benchmark_measures_what_it_shows() -> None:
    """It compares the losses of all ways itself, and stops where they differ."""
    output = output_of("bench_train.py", "--cells", "40,2,2", "--cpu-time", "--rounds", "1")
    assert output.count("40, 2, 2") == 3  # when it is measured, in its table, and where trees are built
    assert "Building trees" in output


@pytest.mark.parametrize("wrong", [("--cells", "256,16"), ("--cells", "256,0,8"), ("--ways", "rows,merged")])
def test_the_training_benchmark_says_what_it_cannot_measure(wrong: tuple[str, str]) -> None:
    command = [sys.executable, ROOT / "benchmarks" / "bench_train.py", *wrong]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert f"{wrong[1]!r}: " in done.stderr
    assert "Traceback" not in done.stderr


def test_the_benchmark_of_rollout_files_runs() -> None:
    """It reads back what it wrote."""
    output = output_of("bench_rollout_files.py", "--groups", "1")
    assert "1024, 8, 8" in output


def test_the_benchmark_of_rollouts_runs() -> None:
    """The sampler writes what ``generate`` writes, and episodes wait for nobody for long."""
    output = output_of("bench_rollout.py", "--quick", "--cpu-time")
    for row in ("lockstep / episodes", "ideal / episodes", "batched", "single"):
        assert row in output
    assert output.count("16 of 16 responses") == 3


def test_the_benchmark_of_joining_runs() -> None:
    """It checks that all tokens were written; with patience the passes are the same on every machine."""
    output = output_of("bench_joining.py", "--quick", "--latencies", "0", "--patience", "30")
    passes = {cells[3]: int(cells[4]) for line in output.splitlines() if len(cells := line.split("│")) > 8}
    assert passes[" joining "] < 0.8 * passes[" whole   "]


@pytest.mark.slow
@pytest.mark.ranks
def test_the_study_of_presets_makes_a_table_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    small = "--updates 1 --supervised.batches 2 --evaluation.episodes 4 --rollout.groups 2 --rollout.group-size 2"
    chosen = f"quickstart --presets grpo --seeds 0 --port {free_port()} --further"
    study = ("learn_presets.py", *chosen.split(), small)
    first = output_of(*study, folder=tmp_path)
    *_, row = first.splitlines()
    assert row.startswith("| `grpo` | 0 | ")
    second = output_of(*study, folder=tmp_path)
    assert "$" not in second  # nothing is run again
    assert second.splitlines()[-1] == row
