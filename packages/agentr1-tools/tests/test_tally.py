import pytest
from agentr1_tools import ToolResult
from agentr1_tools.tally import Tally


def test_an_empty_tally_is_all_zeros():
    assert Tally().report() == {
        "calls": 0,
        "errors": {},
        "injected": 0,
        "cache_hits": 0,
        "cache_misses": 0,
        "seconds_p50": 0.0,
        "seconds_p95": 0.0,
    }


def test_calls_errors_and_cache_are_counted():
    tally = Tally()
    tally.looked_up(hit=False)
    tally.finished(ToolResult.success(1), 0.5)
    tally.looked_up(hit=True)
    tally.finished(ToolResult.success(1), None)
    tally.finished(ToolResult.failure("TIMEOUT", "late"), 1.0)
    tally.finished(ToolResult.failure("INVALID_ARGUMENT", "no"), None)
    tally.finished(ToolResult.failure("INVALID_ARGUMENT", "no").with_metrics(injected=True), None)
    report = tally.report()
    assert (report["calls"], report["injected"]) == (5, 1)
    assert report["errors"] == {"INVALID_ARGUMENT": 2, "TIMEOUT": 1}
    assert (report["cache_hits"], report["cache_misses"]) == (1, 1)
    assert (report["seconds_p50"], report["seconds_p95"]) == (0.5, 1.0)


@pytest.mark.parametrize(("count", "p50", "p95"), [(1, 1, 1), (2, 1, 2), (20, 10, 19), (100, 50, 95), (101, 51, 96)])
def test_quantiles_are_the_smallest_value_that_covers_the_share(count, p50, p95):
    tally = Tally()
    for seconds in range(count, 0, -1):
        tally.finished(ToolResult.success(1), float(seconds))
    report = tally.report()
    assert (report["seconds_p50"], report["seconds_p95"]) == (p50, p95)
