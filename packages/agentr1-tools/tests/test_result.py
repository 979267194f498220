import asyncio
import enum
import json
import math
from types import MappingProxyType

import pytest
from agentr1_tools import ToolError, ToolResult
from agentr1_tools.result import NotJsonError, as_json, from_exception, normalise, normalise_batch, well_formed


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


class Broken:
    """An object that cannot say what it is."""

    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __hash__ = __eq__ = __str__


class BrokenError(Exception):
    __str__ = Broken.__str__


class Shade(enum.IntEnum):
    RED = 3


class Shout(str):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "returned",
    [
        Broken(),
        {"status": "success", "data": Broken()},
        {"status": "success", "data": {"a": [Broken()]}},
        {"status": Broken(), "data": 1},
        {"error": "X", "message": Broken()},
        {"error": ""},
        ToolResult("error", error=""),
        ToolResult("success", data=1, metrics=None),
        ToolResult("success", data=1, metrics={"seconds": Broken()}),
        {"status": "success", "data": {Shade.RED: 1}},
        {"status": "success", "data": b"\x89PNG an image"},
    ],
    ids=range(11),
)
def test_objects_that_break_when_they_are_looked_at_are_INVALID_RESULT_too(returned):
    assert normalise(returned).error == "INVALID_RESULT"


def test_an_exception_that_cannot_say_what_it_is_is_an_error_result():
    assert from_exception(BrokenError()).text == "Error [EXECUTION_ERROR]: BrokenError"
    assert from_exception(ToolError("", "a code left out")).error == "EXECUTION_ERROR"


def test_what_comes_out_is_a_copy_in_plain_types():
    inner = [1]
    given = {"list": inner, "pair": (1, 2), "shade": Shade.RED, "view": MappingProxyType({"a": Shout("b")})}
    data = normalise({"status": "success", "data": given}).data
    assert data == {"list": [1], "pair": [1, 2], "shade": 3, "view": {"a": "b"}}
    assert [type(data["shade"]), type(data["view"]), type(data["view"]["a"])] == [int, dict, str]
    inner.append(2)
    assert data["list"] == [1]


def test_text_is_such_that_utf_8_can_hold_it():
    assert normalise({"status": "success", "data": {"\ud800": "a\udfff", "smile": "\ud83d\ude00"}}).data == {
        "\ufffd": "a\ufffd",
        "smile": "😀",
    }
    assert normalise({"status": "success", "data": 1, "text": "\ud800é"}).text == "\ufffdé"
    assert from_exception(ValueError("\ud800")).text.endswith("\ufffd")
    assert well_formed("é😀") == "é😀"


def test_a_batch_is_a_list_with_a_result_for_each():
    good, bad = {"status": "success", "data": 1}, {"status": "success", "data": math.nan}
    results = normalise_batch([good, bad, {"error": "NO"}], 3)
    assert [result.error for result in results] == [None, "INVALID_RESULT", "NO"]
    assert normalise_batch([good], 2) is None
    assert normalise_batch({"status": "success", "data": []}, 1) is None
    assert normalise_batch(None, 1) is None


def test_the_problem_names_the_place():
    with pytest.raises(NotJsonError, match=r"^data\.a\[1\]\.b is a set, which JSON cannot hold$"):
        as_json({"a": [1, {"b": {2}}]})
    with pytest.raises(NotJsonError, match=r"^metrics\.a has a key that is no string but a int$"):
        as_json({"a": {1: 2}}, "metrics")


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
