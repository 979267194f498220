"""The time to parse grows with the text, not faster, whatever the text is made of; on the texts of the benchmark."""

import importlib.util
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "bench_tools_parsing.py"
CHOSEN = (
    "open braces",
    "escaped quotes in a string",
    "line breaks in a string",
    "open brackets as a value",
    "objects behind 31 broken calls",
    "open strings",
    "open values",
    "closings",
)


def load_benchmark():
    spec = importlib.util.spec_from_file_location("bench_tools_parsing", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bench = load_benchmark()


@pytest.mark.parametrize("label", CHOSEN)
@pytest.mark.parametrize("name", bench.PARTS)
def test_eight_times_the_text_takes_about_eight_times_as_long(name, label):
    start, unit = bench.adversarial_texts(name)[label]
    small = bench.seconds(name, start, unit, bench.SMALL_SIZE, runs=2)
    whole = bench.seconds(name, start, unit, bench.SIZE, runs=2)
    assert whole < 32 * small + 0.05  # a quadratic scan would take 64 times as long, and seconds
    assert whole < 3.0
