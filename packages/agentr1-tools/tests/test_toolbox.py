import asyncio
import gc
import threading
import time

import pytest
from agentr1_tools import CallError, ToolBox, ToolCall, ToolError, ToolResult, load_tool, tool
from agentr1_tools.errors import DuplicateNameError, InvalidToolError, ToolConfigError, ToolOpenError, UnknownToolError
from hypothesis import given, settings
from hypothesis import strategies as st

ran: list[int] = []
PATIENCE = 10.0  # the limit of a call on a busy machine


@tool(cooperative=True, timeout=PATIENCE)
def count(x: int, factor: int = 1) -> int:
    """Count.

    Args:
        x: What to count.
    """
    ran.append(x)
    return x * factor


@tool(cooperative=True, timeout=PATIENCE)
def fail(code: str = "INVALID_CITY") -> None:
    """Fail."""
    raise ToolError(code, "no such city")


@tool(cooperative=True, timeout=PATIENCE)
def talk(size: int) -> str:
    """Talk."""
    return "<" + "x" * size + ">"


@pytest.fixture(autouse=True)
def _nothing_ran():
    ran.clear()


@pytest.fixture
def box(open_box):
    return open_box([count, fail, talk])


def test_names_and_schemas_are_in_the_given_order(box):
    assert box.names == ["count", "fail", "talk"]
    assert [schema["function"]["name"] for schema in box.schemas] == box.names
    assert box.schemas[0] == count.schema


def test_a_success_carries_data_text_source_and_metrics(box):
    result = box.call(ToolCall("count", {"x": 3, "factor": 2}))
    assert (result.ok, result.data, result.text, result.source) == (True, 6, "6", "count")
    assert result.metrics["cached"] is False
    assert result.metrics["truncated"] is False
    assert result.metrics["seconds"] > 0


@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        (ToolCall("cuont", {"x": 1}), "UNKNOWN_TOOL", "did you mean 'count'?"),
        (ToolCall("", {}), "UNKNOWN_TOOL", "tools: count, fail, talk"),
        (ToolCall(None, {}), "UNKNOWN_TOOL", "no tool 'None'"),
        (ToolCall(["count"], {}), "UNKNOWN_TOOL", "no tool"),
        (ToolCall("count", {"x": "1"}), "INVALID_ARGUMENT", "x: '1' is not of type 'integer'"),
        (ToolCall("count", {}), "INVALID_ARGUMENT", "'x' is a required property"),
        (ToolCall("count", {"x": 1, "facter": 2}), "INVALID_ARGUMENT", "did you mean 'factor'"),
        (ToolCall("count", [1]), "INVALID_ARGUMENT", "not an object"),
        (ToolCall("count", {"x": {1}}), "INVALID_ARGUMENT", "is a set"),
        (ToolCall("count", positional=(1, 2, 3)), "INVALID_ARGUMENT", "3 values without a name"),
        (ToolCall("fail", {}), "INVALID_CITY", "Error [INVALID_CITY]: no such city"),
        (CallError("PARSE_ERROR", "broken JSON"), "PARSE_ERROR", "Error [PARSE_ERROR]: broken JSON"),
    ],
)
def test_every_failure_is_a_result_with_its_code(box, call, code, text):
    result = box.call(call)
    assert (result.status, result.error) == ("error", code)
    assert text in result.text
    assert asyncio.run(box.acall(call)).error == code
    assert ran == []


def test_values_without_a_name_get_the_schemas_names(box):
    assert box.call(ToolCall("count", {"factor": 3}, positional=(5,))).data == 15


@settings(max_examples=200)
@given(
    st.builds(
        ToolCall,
        st.sampled_from(["count", "fail", "talk"]) | st.text(max_size=5),
        st.dictionaries(
            st.sampled_from(["x", "factor", "code", "size"]) | st.text(max_size=3),
            st.none() | st.integers(-5, 5) | st.floats() | st.text(max_size=5) | st.lists(st.integers()),
            max_size=3,
        ),
        positional=st.lists(st.integers(0, 3) | st.text(max_size=3), max_size=3).map(tuple),
    )
)
def test_no_call_raises(call):
    assert isinstance(SHARED.call(call), ToolResult)


SHARED = ToolBox([count, fail, talk])


def test_calls_run_together_and_stand_in_order(open_box):
    meet = threading.Barrier(3)  # one after another, they would never pass it

    @tool(cooperative=True, timeout=60, cacheable=False)
    def sleep(seconds: float) -> float:
        """Sleep, once three have come."""
        meet.wait()
        time.sleep(seconds)
        return seconds

    box = open_box([sleep])
    calls = [
        ToolCall("sleep", {"seconds": 0.4}),
        CallError("PARSE_ERROR", "broken"),
        ToolCall("sleep", {"seconds": 0.0}),
        ToolCall("slep", {}),
        ToolCall("sleep", {"seconds": 0.2}),
    ]
    results = box.call_many(calls)
    assert [result.data for result in results] == [0.4, None, 0.0, None, 0.2]
    assert [result.error for result in results] == [None, "PARSE_ERROR", None, "UNKNOWN_TOOL", None]
    assert box.call_many([]) == []


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_two_hundred_calls_overlap(open_box, kind):
    @tool(cooperative=True, timeout=60, cacheable=False, name="wait")
    def wait_sync() -> None:
        """Wait."""
        time.sleep(0.2)

    @tool(cooperative=True, timeout=60, cacheable=False, name="wait")
    async def wait_async() -> None:
        """Wait."""
        await asyncio.sleep(0.2)

    box = open_box([wait_sync if kind == "sync" else wait_async])
    started = time.perf_counter()
    results = await box.acall_many([ToolCall("wait")] * 200)
    assert all(result.ok for result in results)
    assert time.perf_counter() - started < 30  # one after another: 40 s


async def test_an_async_caller_keeps_its_loop(open_box):
    turned = threading.Event()

    @tool(cooperative=True, timeout=60)
    def block() -> bool:
        """Block until the loop has turned."""
        return turned.wait(30)

    call = asyncio.create_task(open_box([block]).acall(ToolCall("block")))
    for _ in range(10):
        await asyncio.sleep(0.01)
    assert not call.done()
    turned.set()
    assert (await call).data is True


def test_an_equal_call_is_answered_from_the_cache(box):
    first = box.call(ToolCall("count", {"x": 4, "factor": 2}))
    second = box.call(ToolCall("count", {"factor": 2, "x": 4}))
    third = asyncio.run(box.acall(ToolCall("count", {"factor": 2}, positional=(4,))))
    assert ran == [4]
    assert (first.data, second.data, third.data) == (8, 8, 8)
    assert (first.metrics["cached"], second.metrics["cached"], third.metrics["cached"]) == (False, True, True)
    assert box.metrics()["count"]["cache_hits"] == 2
    assert box.metrics()["count"]["cache_misses"] == 1


def test_a_tool_that_changes_its_arguments_changes_nobody_elses(open_box, make_tool):
    def greedy(params):
        params["x"].append("more")
        params["seen"] = True
        return {"status": "success", "data": len(params["x"])}

    box = open_box([make_tool(greedy, cooperative=True)])
    call = ToolCall("probe", {"x": ["a"]})
    assert box.call(call).data == 2
    assert call.arguments == {"x": ["a"]}
    assert box.call(call).metrics["cached"] is True  # kept under what was asked, not under what the tool made of it
    assert box.call(ToolCall("probe", {"x": ["a", "more"], "seen": True})).metrics["cached"] is False


def test_what_a_tool_keeps_of_its_result_reaches_nobody(open_box, make_tool):
    kept = []

    def shared(params):
        kept.append(params["x"])
        return {"status": "success", "data": kept}

    box = open_box([make_tool(shared, cooperative=True, cacheable=False)])
    first = box.call(ToolCall("probe", {"x": 1}))
    box.call(ToolCall("probe", {"x": 2}))
    assert first.data == [1]


def test_errors_are_not_cached_and_a_tool_can_stay_out_of_the_cache(open_box):
    answers = iter([ToolError("FLAKY", "once"), 5, 6])

    @tool(cooperative=True, timeout=PATIENCE)
    def flaky() -> int:
        """Flaky."""
        answer = next(answers)
        if isinstance(answer, ToolError):
            raise answer
        return answer

    box = open_box([flaky])
    assert [box.call(ToolCall("flaky")).data for _ in range(3)] == [None, 5, 5]
    stirred = iter(range(9))

    @tool(cooperative=True, timeout=PATIENCE, cacheable=False)
    def fresh() -> int:
        """Fresh."""
        return next(stirred)

    box = open_box([fresh])
    assert [box.call(ToolCall("fresh")).data for _ in range(3)] == [0, 1, 2]
    assert box.metrics()["fresh"]["cache_misses"] == 0


def test_the_cache_can_be_turned_off(open_box):
    box = open_box([count], cache_size=0)
    box.call(ToolCall("count", {"x": 1}))
    box.call(ToolCall("count", {"x": 1}))
    assert ran == [1, 1]


def test_long_results_keep_head_and_tail_and_their_data(open_box):
    box = open_box([talk], max_result_chars=200)
    result = box.call(ToolCall("talk", {"size": 5000}))
    assert len(result.text) <= 200
    assert (result.text[0], result.text[-1]) == ("<", ">")
    assert "characters cut" in result.text
    assert len(result.data) == 5002
    assert result.metrics["truncated"] is True
    assert len(box.call(ToolCall("y" * 100_000)).text) < 300


def test_an_exception_that_cannot_be_printed_is_a_result_too(open_box, make_tool):
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    def fail(params):
        raise MuteError

    for cooperative in (True, False):
        result = open_box([make_tool(fail, cooperative=cooperative)]).call(ToolCall("probe"))
        assert (result.error, result.text) == ("EXECUTION_ERROR", "Error [EXECUTION_ERROR]: MuteError")


def test_min_interval_waits(open_box, make_tool):
    box = open_box([make_tool(lambda params: {"status": "success", "data": 1}, min_interval=0.15, cooperative=True)])
    started = time.perf_counter()
    assert all(box.call(ToolCall("probe", {"x": number})).ok for number in range(3))
    assert time.perf_counter() - started >= 0.3


async def test_min_interval_waits_without_blocking_the_loop(open_box):
    @tool(cooperative=True, timeout=PATIENCE, min_interval=0.15)
    async def slowly(x: int) -> int:
        """Slowly."""
        return x

    box = open_box([slowly])
    started = time.perf_counter()
    results = await box.acall_many([ToolCall("slowly", {"x": number}) for number in range(3)])
    assert [result.data for result in results] == [0, 1, 2]
    assert time.perf_counter() - started >= 0.3


def test_min_interval_can_be_an_error(open_box, make_tool):
    probe = make_tool(lambda params: {"status": "success", "data": 1}, min_interval=1.5, cooperative=True)
    box = open_box([probe], on_rate_limit="error")
    assert box.call(ToolCall("probe")).ok
    result = box.call(ToolCall("probe"))
    assert result.error == "RATE_LIMITED"
    assert "once in 1.5 s" in result.text
    time.sleep(1.6)
    assert box.call(ToolCall("probe")).ok
    assert box.metrics()["probe"]["errors"] == {"RATE_LIMITED": 1}


def test_metrics_tell_what_happened(box):
    box.call(ToolCall("count", {"x": 1}))
    box.call(ToolCall("count", {"x": 1}))
    box.call(ToolCall("count", {"x": "1"}))
    box.call(ToolCall("fail"))
    assert list(box.metrics()) == ["count", "fail", "talk"]
    report = box.metrics()["count"]
    assert (report["calls"], report["errors"], report["cache_hits"]) == (3, {"INVALID_ARGUMENT": 1}, 1)
    assert 0 < report["seconds_p50"] <= report["seconds_p95"]
    assert box.metrics()["fail"]["errors"] == {"INVALID_CITY": 1}
    box.call(ToolCall("nowhere"))
    box.call(CallError("PARSE_ERROR", "broken"))
    assert box.metrics()["(no tool)"]["errors"] == {"PARSE_ERROR": 1, "UNKNOWN_TOOL": 1}


def test_a_box_opens_at_the_first_call_and_stays_closed(make_tool):
    probe = make_tool(lambda params: {"status": "success", "data": 1}, cooperative=True)
    events = []
    probe.open, probe.close = (lambda: events.append("open")), (lambda: events.append("close"))
    box = ToolBox([probe])
    assert events == []
    assert box.call(ToolCall("probe")).ok
    box.open()
    box.close()
    box.close()
    assert events == ["open", "close"]
    assert box.call(ToolCall("probe", {"x": 2})).error == "CANCELLED"
    with box:
        assert box.call(ToolCall("probe", {"x": 2})).ok
    assert events == ["open", "close"] * 2


def test_a_tool_that_does_not_open_stops_open_but_not_a_call(make_tool):
    first = make_tool(lambda params: {}, cooperative=True, name="first")
    second = make_tool(lambda params: {}, cooperative=True, name="second")
    events = []
    first.open, first.close = (lambda: events.append("open")), (lambda: events.append("close"))
    second.open = lambda: 1 / 0
    box = ToolBox([first, second])
    with pytest.raises(ToolOpenError, match="tool 'second' cannot be opened: ZeroDivisionError"):
        box.open()
    assert events == ["open", "close"]
    result = box.call(ToolCall("first"))
    assert (result.error, "second" in result.text) == ("EXECUTION_ERROR", True)


def test_a_dropped_box_closes_its_tools(make_tool):
    probe = make_tool(lambda params: {"status": "success", "data": 1}, cooperative=True)
    events = []
    probe.close = lambda: events.append("close")
    box = ToolBox([probe])
    box.call(ToolCall("probe"))
    del box
    gc.collect()
    assert events == ["close"]


def test_tools_may_be_names_and_are_restricted_by_allow():
    assert ToolBox(["calculator", count]).names == ["calculator", "count"]
    assert ToolBox([count, fail, talk], allow=["talk", "count"]).names == ["count", "talk"]
    with pytest.raises(UnknownToolError, match="allow names tlak, but the tools are none"):
        ToolBox([talk], allow=["tlak"])


def test_wrong_set_ups_are_refused():
    with pytest.raises(DuplicateNameError, match="called 'count'"):
        ToolBox([count, count])
    with pytest.raises(InvalidToolError, match="@tool"):
        ToolBox([print])
    with pytest.raises(UnknownToolError):
        ToolBox(["nowhere"])
    for wrong in ({"cache_size": -1}, {"max_result_chars": 5}, {"on_rate_limit": "panic"}, {"workers": 0}):
        with pytest.raises(ToolConfigError, match=f"{next(iter(wrong))} is"):
            ToolBox([count], **wrong)


def test_the_built_in_tools_share_a_box():
    calculator = load_tool("calculator")
    calculator.timeout = PATIENCE
    with ToolBox([calculator]) as box:
        started = time.perf_counter()
        for number in range(200):
            assert box.call(ToolCall("calculator", {"expression": f"{number} * 2"})).data == number * 2
        assert (time.perf_counter() - started) / 200 < 0.02
