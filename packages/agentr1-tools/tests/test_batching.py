import asyncio
import os
import signal
import threading
import time
import warnings

import pytest
from agentr1_tools import BaseTool, ToolBox, ToolCall
from agentr1_tools.batching import BatchRunner
from agentr1_tools.errors import InvalidToolError
from agentr1_tools.result import normalise

pytestmark = pytest.mark.once

GATE_SECONDS = 30  # what a test waits for at most; nothing here takes that long


class Doubler(BaseTool):
    """Doubles x. `execute_batch` notes the size of each batch in its results; some x misbehave.

    An x that is a path waits until there is such a file: it keeps the tool busy for as long as a test needs.
    """

    name = "double"
    description = "Double a number."
    parameters = {"type": "object", "properties": {"x": {}}, "required": ["x"]}  # noqa: RUF012
    timeout = 10.0
    cacheable = False

    def execute(self, params):
        x = params["x"]
        while isinstance(x, str) and x.startswith("/") and not os.path.exists(x):
            time.sleep(0.005)
        if x == "hang":
            time.sleep(40)
        if x == "raise":
            raise ValueError("alone too")
        if x == "exit":
            os._exit(1)
        return {"status": "success", "data": {"double": x * 2, "pid": os.getpid()}}

    def execute_batch(self, batch):
        results = []
        for params in batch:
            if params["x"] == "bad":
                results.append({"error": "BAD", "message": "no"})
            elif params["x"] == "nan":
                results.append({"status": "success", "data": float("nan")})
            elif params.pop("x") == "short":  # what a batch does to its arguments must not reach the second try
                return results
            else:
                results.append(None)
        for place in range(len(batch)):
            if results[place] is None:
                results[place] = {"status": "success", "data": {"size": len(batch)}}
        return results


class InProcess(Doubler):
    cooperative = True


class OnLoop(BaseTool):
    name, description, parameters = "double", "Double a number, on the loop.", Doubler.parameters
    timeout, cacheable, cooperative = 10.0, False, True

    async def execute(self, params):
        while str(params["x"]).startswith("/") and not os.path.exists(params["x"]):
            await asyncio.sleep(0.005)
        return Doubler().execute(params)

    async def execute_batch(self, batch):
        return Doubler().execute_batch(batch)


@pytest.fixture(params=[Doubler, InProcess, OnLoop])
def box(request, open_box):
    return open_box([request.param()])


@pytest.fixture
def together(tmp_path):
    """Calls of several episodes: one keeps the tool busy until all others wait, so that these meet in one batch."""

    def call_all(box, *values):
        gate, waiting = tmp_path / "gate", box._slots["double"].runner._waiting
        results = {}

        def call(place, value):
            results[place] = box.call(ToolCall("double", {"x": value}))

        threads = [threading.Thread(target=call, args=pair) for pair in enumerate([str(gate), *values])]
        threads[0].start()
        until(lambda: box._slots["double"].runner._led and not waiting)
        for thread in threads[1:]:
            thread.start()
        until(lambda: len(waiting) == len(values))
        gate.touch()
        for thread in threads:
            thread.join(GATE_SECONDS)
            assert not thread.is_alive()
        return [results[place] for place in range(1, len(threads))]

    return call_all


def until(holds):
    deadline = time.monotonic() + GATE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_calls_that_come_while_the_tool_works_run_as_one_batch(box, together):
    results = together(box, *range(6))
    assert [result.data for result in results] == [{"size": 6}] * 6
    assert [result.metrics["batch"] for result in results] == [6] * 6


def test_a_lone_call_does_not_wait_for_company(box):
    started = time.perf_counter()
    result = box.call(ToolCall("double", {"x": 4}))
    assert result.data["double"] == 8
    assert "batch" not in result.metrics
    assert time.perf_counter() - started < 8


def test_a_failed_element_is_its_own_result(box, together):
    results = together(box, 1, "bad", "nan", 2)
    assert [result.error for result in results] == [None, "BAD", "INVALID_RESULT", None]
    assert {result.metrics["batch"] for result in results} == {4}


def test_a_batch_that_comes_back_short_runs_again_call_by_call(box, together):
    results = together(box, 1, "short", 3)
    assert [result.data["double"] for result in results] == [2, "shortshort", 6]
    assert not any("batch" in result.metrics for result in results)


@pytest.mark.parametrize("kind", [Doubler, InProcess])
def test_a_batch_that_raises_fails_only_the_call_that_raises_alone(open_box, together, kind):
    class Fragile(kind):
        def execute_batch(self, batch):
            raise RuntimeError(f"{len(batch)} at once are too many")

    results = together(open_box([Fragile()]), 1, "raise", 3)
    assert [result.error for result in results] == [None, "EXECUTION_ERROR", None]
    assert "alone too" in results[1].text


@pytest.mark.parametrize("kind", [Doubler, InProcess])
def test_an_element_that_hangs_is_cut_off_and_the_others_have_their_results(open_box, together, kind):
    class Slow(kind):
        timeout = 3.0  # of the call at the gate, too

        def execute_batch(self, batch):
            time.sleep(40 if any(params["x"] == "hang" for params in batch) else 0)
            return super().execute_batch(batch)

    box = open_box([Slow()])
    started = time.perf_counter()
    results = together(box, 1, "hang", 3)
    assert time.perf_counter() - started < 38
    assert [result.error for result in results] == [None, "TIMEOUT", None]
    assert results[1].text == "Error [TIMEOUT]: the tool gave no answer within 3 s"
    assert [result.data["double"] for result in (results[0], results[2])] == [2, 6]


def test_a_batch_that_ends_its_process_costs_only_the_call_that_does(open_box, together):
    class Crashing(Doubler):
        def execute_batch(self, batch):
            os._exit(1)

    results = together(open_box([Crashing()]), 1, "exit", 3)
    assert [result.error for result in results] == [None, "EXECUTION_ERROR", None]


def test_a_tool_may_limit_its_batches(open_box, together):
    class Pairs(InProcess):
        max_batch = 2

    results = together(open_box([Pairs()]), *range(6))
    assert [result.data["size"] for result in results] == [2] * 6


def test_the_cache_holds_each_call_of_a_batch_by_itself(open_box, together):
    class Kept(InProcess):
        cacheable = True

    box = open_box([Kept()])
    together(box, 1, "bad", 2)
    assert [box.call(ToolCall("double", {"x": x})).metrics["cached"] for x in (1, "bad", 2)] == [True, False, True]


async def test_calls_of_one_event_loop_meet_in_batches_too(open_box, tmp_path):
    gate = tmp_path / "gate"
    box = open_box([InProcess()])
    calls = [ToolCall("double", {"x": x}) for x in (str(gate), *range(20))]
    together = asyncio.create_task(box.acall_many(calls))
    await asyncio.to_thread(until, lambda: len(box._slots["double"].runner._waiting) == 20)
    gate.touch()
    results = await together
    assert [result.data for result in results[1:]] == [{"size": 20}] * 20


def test_closing_cancels_the_calls_that_wait(open_box, tmp_path):
    gate = tmp_path / "gate"
    box = open_box([InProcess()])
    runner, results = box._slots["double"].runner, []
    busy = threading.Thread(target=lambda: box.call(ToolCall("double", {"x": str(gate)})))
    waiting = threading.Thread(target=lambda: results.append(box.call(ToolCall("double", {"x": 1}))))
    busy.start()
    until(lambda: runner._led and not runner._waiting)
    waiting.start()
    until(lambda: len(runner._waiting) == 1)
    box.close()
    waiting.join(GATE_SECONDS)
    assert [result.error for result in results] == ["CANCELLED"]
    gate.touch()
    busy.join(GATE_SECONDS)
    box.open()  # and a box that is opened again has nobody leading a batch that never ends
    assert box.call(ToolCall("double", {"x": 2})).data["double"] == 4


def test_a_forked_child_waits_for_no_thread_of_its_parent(open_box, tmp_path):
    gate = tmp_path / "gate"
    box = open_box([InProcess()])
    busy = threading.Thread(target=lambda: box.call(ToolCall("double", {"x": str(gate)})))
    busy.start()
    until(lambda: box._slots["double"].runner._led)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Pythons that warn of a fork beside threads
        pid = os.fork()
    if pid == 0:
        signal.alarm(GATE_SECONDS)
        os._exit(0 if box.call(ToolCall("double", {"x": 2})).data["double"] == 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    gate.touch()
    busy.join(GATE_SECONDS)


class Interrupted:
    """A runner whose first batch is interrupted, as by Ctrl-C in the thread that leads it."""

    def __init__(self):
        self.batches = []
        self.gate = threading.Event()

    def run(self, params):
        if params["x"] == "first":
            self.gate.wait(GATE_SECONDS)
        return normalise({"status": "success", "data": params["x"]})

    def run_batch(self, batch):
        self.batches.append(len(batch))
        raise KeyboardInterrupt


def test_an_interrupted_leader_leaves_its_batch_to_run_alone():
    inner = Interrupted()
    runner = BatchRunner(inner, 8)
    outcomes = {}

    def call(x):
        try:
            outcomes[x] = runner.run({"x": x}).data
        except KeyboardInterrupt:
            outcomes[x] = "interrupted"

    threads = [threading.Thread(target=call, args=(x,)) for x in ("first", "leader", "mate", "other")]
    for place, thread in enumerate(threads):
        thread.start()
        until(lambda place=place: runner._led and len(runner._waiting) == place)
    inner.gate.set()
    for thread in threads:
        thread.join(GATE_SECONDS)
        assert not thread.is_alive()
    assert outcomes == {"first": "first", "leader": "interrupted", "mate": "mate", "other": "other"}
    assert inner.batches == [3]
    assert runner.run({"x": "later"}).data == "later"


def test_both_ways_to_run_are_async_or_neither():
    class Mixed(InProcess):
        async def execute_batch(self, batch):
            return []

    with pytest.raises(InvalidToolError, match="one of execute and execute_batch is async"):
        ToolBox([Mixed()])
