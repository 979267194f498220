import asyncio
import threading
import time

import pytest
from agentr1_tools import BaseTool, ToolCall, tool
from agentr1_tools.runners import LoopRunner, RefusingRunner, ThreadRunner, make_runner
from agentr1_tools.worker.runner import ProcessRunner

pytestmark = pytest.mark.once


@tool(cooperative=True, timeout=1.0, cacheable=False)
async def nap(seconds: float) -> str:
    """Sleep on the loop."""
    await asyncio.sleep(seconds)
    return threading.current_thread().name


@tool(cooperative=True, timeout=1.0, cacheable=False)
def snooze(seconds: float) -> str:
    """Sleep on a thread."""
    time.sleep(seconds)
    return threading.current_thread().name


def test_a_tools_declarations_choose_the_runner(make_tool):
    assert isinstance(make_runner(nap, 1), LoopRunner)
    assert isinstance(make_runner(snooze, 1), ThreadRunner)
    assert isinstance(make_runner(make_tool(lambda params: {}), 1), ProcessRunner)
    assert isinstance(make_runner(make_tool(lambda params: {}, risky=True, cooperative=True), 1), RefusingRunner)


def test_a_risky_tool_without_a_sandbox_is_refused(open_box, make_tool):
    ran = []
    box = open_box([make_tool(ran.append, risky=True, cooperative=True)])
    assert box.call(ToolCall("probe")).error == "SANDBOX_ERROR"
    assert ran == []


@pytest.mark.parametrize("lazy", [nap, snooze])
def test_the_limit_holds_and_the_next_call_works(open_box, lazy):
    box = open_box([lazy])
    for _ in range(2):
        started = time.perf_counter()
        assert box.call(ToolCall(lazy.name, {"seconds": 12})).error == "TIMEOUT"
        assert time.perf_counter() - started < 11  # the nap itself takes 12 s
        result = box.call(ToolCall(lazy.name, {"seconds": 0}))
        assert result.data.startswith("agentr1-tools-")


@pytest.mark.parametrize("lazy", [nap, snooze])
async def test_the_limit_holds_for_async_callers_too(open_box, lazy):
    box = open_box([lazy])
    started = time.perf_counter()
    results = await box.acall_many([ToolCall(lazy.name, {"seconds": 12}), ToolCall(lazy.name, {"seconds": 0})])
    assert [result.error for result in results] == ["TIMEOUT", None]
    assert time.perf_counter() - started < 11


def test_a_timeout_error_of_the_tools_own_is_not_ours(open_box):
    @tool(cooperative=True, timeout=5)
    async def give_up() -> None:
        """Give up."""
        raise TimeoutError("the lake froze over")

    result = open_box([give_up]).call(ToolCall("give_up"))
    assert (result.error, "lake" in result.text) == ("EXECUTION_ERROR", True)


def test_an_async_tool_that_blocks_the_loop_does_not_block_its_caller(open_box):
    @tool(cooperative=True, timeout=0.1)
    async def liar() -> None:
        """Block."""
        time.sleep(4.0)
        free.set()

    free = threading.Event()
    started = time.perf_counter()
    assert open_box([liar]).call(ToolCall("liar")).error == "TIMEOUT"
    assert time.perf_counter() - started < 3.5
    assert free.wait(60)


def test_an_async_tool_keeps_one_loop_whoever_calls(open_box):
    @tool(cooperative=True, cacheable=False, timeout=5)
    async def where() -> int:
        """Where."""
        return id(asyncio.get_running_loop())

    box = open_box([where])
    from_sync = box.call(ToolCall("where")).data
    from_async = asyncio.run(box.acall(ToolCall("where"))).data
    assert from_sync == from_async


def test_a_sync_tool_that_returns_an_awaitable_is_awaited(open_box):
    class Odd(BaseTool):
        name, description, cooperative, timeout = "odd", "Odd.", True, 5

        def execute(self, params):
            return self._later()

        async def _later(self):
            return {"status": "success", "data": 5}

    assert open_box([Odd()]).call(ToolCall("odd")).data == 5


def test_exceptions_of_a_thread_are_results(open_box, make_tool):
    def leave(params):
        raise SystemExit("leaving")

    assert open_box([make_tool(leave, cooperative=True)]).call(ToolCall("probe")).error == "EXECUTION_ERROR"


def test_closing_cancels_async_calls_and_closes_tools(make_tool):
    from agentr1_tools import ToolBox

    @tool(cooperative=True, timeout=60)
    async def wait() -> None:
        """Wait."""
        begun.set()
        await asyncio.sleep(60)

    plain = make_tool(lambda params: {}, cooperative=True)
    events, begun = [], threading.Event()
    plain.open, plain.close = (lambda: events.append("open")), (lambda: events.append("close"))
    box = ToolBox([plain, wait])
    box.open()
    results = []
    caller = threading.Thread(target=lambda: results.append(box.call(ToolCall("wait"))))
    caller.start()
    assert begun.wait(30)
    box.close()
    caller.join(30)
    assert [result.error for result in results] == ["CANCELLED"]
    assert events == ["open", "close"]


async def test_cancelling_the_caller_cancels_the_tool(open_box):
    begun, ended = threading.Event(), threading.Event()

    @tool(cooperative=True, timeout=60)
    async def wait() -> None:
        """Wait."""
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    box = open_box([wait])
    call = asyncio.create_task(box.acall(ToolCall("wait")))
    assert await asyncio.to_thread(begun.wait, 30)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.to_thread(ended.wait, 30)
