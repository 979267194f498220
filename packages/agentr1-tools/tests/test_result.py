import asyncio
import json
import math

import pytest
from agentr1_tools import ToolError, ToolResult
from agentr1_tools.result import from_exception, json_problem, normalise


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ({"status": "success", "data": "words"}, "words"),
        ({"status": "success", "data": {"é": [1, None]}}, '{"é": [1, null]}'),
        ({"status": "success", "data": 3, "text": "three"}, "three"),
        (ToolResult.success([1]), "[1]"),
        (ToolResult("success", data=7), "7"),
    ],
)
def test_a_success_is_read_as_its_text_or_its_data(returned, text):
    result = normalise(returned)
    assert result.ok
    assert result.text == text


def test_an_error_dict_keeps_its_code_and_message():
    result = normalise({"error": "INVALID_CITY", "message": "no city 'Atlantis'", "data": {"near": ["Athens"]}})
    assert (result.status, result.error, result.ok) == ("error", "INVALID_CITY", False)
    assert result.text == "Error [INVALID_CITY]: no city 'Atlantis'"
    assert result.data == {"near": ["Athens"]}


@pytest.mark.parametrize(
    "returned",
    [
        None,
        "text",
        [],
        {},
        {"status": "success"},
        {"status": "fine", "data": 1},
        {"error": 7},
        {"status": "success", "data": 1, "text": 5},
        {"status": "success", "data": 1, "metrics": 5},
        {"status": "success", "data": {1, 2}},
        {"status": "success", "data": math.nan},
        {"status": "success", "data": [math.inf]},
        {"status": "success", "data": {1: "x"}},
        {"status": "success", "data": b"bytes"},
        {"status": "success", "data": 10**5000},
        ToolResult("success", data=object()),
        ToolResult("success", error="X"),
        ToolResult("error"),
        ToolResult("done"),
    ],
)
def test_what_is_no_result_is_INVALID_RESULT(returned):
    assert normalise(returned).error == "INVALID_RESULT"


def test_the_problem_names_the_place():
    assert json_problem({"a": [1, {"b": {2}}]}) == "data.a[1].b is a set, which JSON cannot hold"


def test_data_that_contains_itself_is_refused():
    loop: list = []
    loop.append(loop)
    assert normalise({"status": "success", "data": loop}).error == "INVALID_RESULT"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ToolError("INVALID_CITY", "no"), "INVALID_CITY"),
        (ConnectionRefusedError("no"), "NETWORK_ERROR"),
        (asyncio.CancelledError(), "CANCELLED"),
        (ZeroDivisionError("division by zero"), "EXECUTION_ERROR"),
        (SystemExit(3), "EXECUTION_ERROR"),
    ],
)
def test_exceptions_become_codes(error, code):
    assert from_exception(error).error == code


def test_the_model_reads_type_and_message_but_no_traceback():
    result = from_exception(ValueError("line one\nline two"))
    assert result.text == "Error [EXECUTION_ERROR]: ValueError: line one line two"
    assert len(from_exception(ValueError("x" * 10_000)).text) < 600


def test_the_developer_can_log_the_traceback(caplog):
    with caplog.at_level("DEBUG", "agentr1_tools"):
        from_exception(ZeroDivisionError("division by zero"))
    assert caplog.records[0].exc_info


def test_error_codes_are_plain_text_in_json():
    assert json.dumps(from_exception(KeyError("x")).error) == '"EXECUTION_ERROR"'
