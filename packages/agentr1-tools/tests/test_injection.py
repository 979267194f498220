import asyncio

import pytest
from agentr1_tools import CallError, ErrorInjection, ToolCall
from agentr1_tools.errors import ToolConfigError
from agentr1_tools.injection import CODES, injected_result


def test_which_calls_fail_depends_on_seed_and_number_alone():
    injection = ErrorInjection(0.25, seed=7)
    codes = [injection.code(number) for number in range(4000)]
    assert [ErrorInjection(0.25, seed=7).code(number) for number in reversed(range(4000))] == codes[::-1]
    assert [ErrorInjection(0.25, seed=8).code(number) for number in range(4000)] != codes
    failed = [code for code in codes if code is not None]
    assert 850 < len(failed) < 1150  # 1000 +- 5 standard deviations
    assert all(failed.count(code) > 200 for code in CODES)


def test_the_draw_is_the_same_on_every_machine():
    assert [ErrorInjection(0.5, seed=1).code(number) for number in range(8)] == PINNED


PINNED = ["EXECUTION_ERROR", None, None, "EXECUTION_ERROR", None, "EXECUTION_ERROR", None, None]


def test_rates_nest():
    """A call that fails at a low rate fails at a higher one too, and with the same code."""
    few, many = ErrorInjection(0.1, seed=3), ErrorInjection(0.6, seed=3)
    assert all(few.code(number) in (None, many.code(number)) for number in range(500))
    assert not any(ErrorInjection(0.0, seed=3).code(number) for number in range(500))
    assert all(ErrorInjection(1.0, seed=3, codes=("INVALID_CITY",)).code(number) for number in range(500))


@pytest.mark.parametrize("wrong", [{"rate": -0.1}, {"rate": 1.5}, {"rate": float("nan")}, {"rate": 0.5, "codes": ()}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ToolConfigError, match="must be"):
        ErrorInjection(**{"seed": 0, **wrong})


def test_the_model_reads_what_it_would_read_of_a_real_error():
    assert injected_result("TIMEOUT", 0.3).text == "Error [TIMEOUT]: the tool gave no answer within 0.3 s"
    assert injected_result("INVALID_CITY", 0.3).error == "INVALID_CITY"
    assert injected_result("NETWORK_ERROR", 0.3).metrics == {"injected": True}


@pytest.fixture
def box(open_box, make_tool):
    ran = []

    def execute(params):
        ran.append(params["x"])
        return {"status": "success", "data": params["x"]}

    probe = make_tool(
        execute, cooperative=True, timeout=5, parameters={"type": "object", "required": ["x"], "properties": {"x": {}}}
    )
    box = open_box([probe])
    box.ran = ran
    return box


def test_an_injected_error_takes_the_place_of_a_result_and_is_not_cached(box):
    call = ToolCall("probe", {"x": 1})
    failed = box.call(call, "TIMEOUT")
    assert (failed.error, failed.source, failed.metrics["injected"]) == ("TIMEOUT", "probe", True)
    assert box.ran == []
    real = box.call(call)
    assert (real.data, real.metrics["cached"], "injected" in real.metrics) == (1, False, False)
    assert box.call(call, "NETWORK_ERROR").error == "NETWORK_ERROR"  # a kept result does not shield from it
    assert box.call(call).metrics["cached"] is True
    report = box.metrics()["probe"]
    assert (report["calls"], report["injected"], report["errors"]) == (4, 2, {"NETWORK_ERROR": 1, "TIMEOUT": 1})


def test_a_call_that_is_wrong_anyway_keeps_its_own_error(box):
    items = [ToolCall("probe", {}), ToolCall("porbe"), CallError("PARSE_ERROR", "broken"), ToolCall("probe", {"x": 1})]
    for results in (box.call_many(items, ["TIMEOUT"] * 4), asyncio.run(box.acall_many(items, ["TIMEOUT"] * 4))):
        assert [result.error for result in results] == ["INVALID_ARGUMENT", "UNKNOWN_TOOL", "PARSE_ERROR", "TIMEOUT"]
        assert [bool(result.metrics.get("injected")) for result in results] == [False, False, False, True]


def test_an_injected_error_takes_no_turn_of_a_tool_with_an_interval(open_box, make_tool):
    slow = make_tool(lambda params: {"status": "success", "data": 1}, cooperative=True, min_interval=60)
    box = open_box([slow], on_rate_limit="error")
    assert box.call(ToolCall("probe"), "TIMEOUT").error == "TIMEOUT"
    assert box.call(ToolCall("probe")).ok
    assert box.call(ToolCall("probe"), "TIMEOUT").error == "TIMEOUT"  # whoever called just before
    assert box.call(ToolCall("probe")).error == "RATE_LIMITED"


def test_each_call_needs_its_own_entry(box):
    with pytest.raises(ValueError, match="zip"):
        box.call_many([ToolCall("probe", {"x": 1})] * 2, [None])
