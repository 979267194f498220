import json

import pytest
from agentr1_envs.call_counts import CALL_INFO, CallCounts, titles_in
from agentr1_tools import ToolResult

FINE, FAILED = ToolResult.success(1), ToolResult.failure("EXECUTION_ERROR", "x")
WRONG = ToolResult.failure("PARSE_ERROR", "x")


def test_counts_add_up_and_only_wholly_wrong_steps_are_invalid() -> None:
    counts = CallCounts()
    assert counts.add([WRONG, WRONG])
    assert counts.add([WRONG])
    assert counts.invalid_in_a_row == 2
    assert not counts.add([WRONG, FAILED, FINE])
    assert counts.invalid_in_a_row == 0
    info = counts.info([WRONG, FAILED, FINE])
    assert {**CALL_INFO, **info} == {
        "tool_calls": 6,
        "tool_errors": 5,
        "injected_errors": 0,
        "invalid_calls": 4,
        "invalid_steps": 2,
        "hops_found": 0,
        "error_codes": ("PARSE_ERROR", "EXECUTION_ERROR"),
        "prediction": "",
    }


@pytest.mark.parametrize(
    ("data", "titles"),
    [([{"title": "A"}, {"title": 3}, "B", {"title": "C"}], ["A", "C"]), ({"title": "A"}, ["A"]), (None, []), ("A", [])],
)
def test_titles_in(data: object, titles: list[str]) -> None:
    assert titles_in(data) == titles


def test_counts_can_be_put_aside_and_taken_up() -> None:
    counts = CallCounts()
    counts.hops.update({"b", "a"})
    counts.invalid_steps = 2
    other = CallCounts()
    other.set_state(json.loads(json.dumps(counts.get_state())))
    assert vars(other) == vars(counts)
