"""check_tool finds what it says it finds: each tool here breaks the contract in one way."""

import asyncio
import os
import re
import threading
import time

import pytest
from agentr1_tools import BaseTool, ToolCheckError, ToolError, check_tool, load_tool, tool
from agentr1_tools.wiki_index import Passage, WikiIndex
from agentr1_tools.wiki_search import WikiSearch
from agentr1_tools.worker.nursery import shared

pytestmark = pytest.mark.once


class Good(BaseTool):
    """Adds one. The faulty tools below change one thing each."""

    name = "probe"
    description = "Add one."
    parameters = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}  # noqa: RUF012
    timeout = 5.0
    cooperative = True

    def execute(self, params):
        return {"status": "success", "data": params["x"] + 1}


class GoodAsync(Good):
    async def execute(self, params):
        await asyncio.sleep(0)
        return {"status": "success", "data": params["x"] + 1}


class GoodBatch(Good):
    def execute_batch(self, batch):
        return [self.execute(params) for params in batch]


class GoodInAProcess(Good):
    cooperative = False


@tool(timeout=5, cooperative=True)
def shout(text: str, times: int = 1) -> str:
    """Say it loudly."""
    if times < 0:
        raise ToolError("INVALID_TIMES", "fewer than none")
    return text.upper() * times


@pytest.fixture(scope="module", autouse=True)
def _one_nursery():
    """The process that forks workers starts once for all tests here, not once for each."""
    shared.acquire()
    yield
    shared.release()


CALCULATOR = load_tool("calculator")
CALCULATOR.timeout = 10.0
INDEX = WikiIndex([Passage(1, "Example", ("An example.",))])


@pytest.mark.parametrize(
    "fine",
    [
        Good(),
        GoodAsync(),
        GoodBatch(),
        GoodInAProcess(),
        shout,
        CALCULATOR,
        WikiSearch(index=INDEX, timeout=10),
    ],
    ids=lambda fine: type(fine).__name__,
)
def test_a_tool_that_keeps_the_contract_passes_quietly(fine):
    assert check_tool(fine) is None


class Raising(Good):
    def execute(self, params):
        return {"status": "success", "data": 1 / params["x"]}


class Odd(Good):
    def execute(self, params):
        return {"status": "success", "data": {params["x"]}}


class Mutating(Good):
    def execute(self, params):
        return {"status": "success", "data": params.pop("x")}


class MutatingAsync(Good):
    async def execute(self, params):
        return {"status": "success", "data": params.pop("x")}


class Counting(Good):
    calls = 0

    def execute(self, params):
        self.calls += 1
        return {"status": "success", "data": self.calls}


class Racing(Good):
    """Right one call after another; wrong when two calls are inside at once."""

    def execute(self, params):
        self.current = params["x"]
        time.sleep(0.02)
        return {"status": "success", "data": self.current}


class Slow(Good):
    timeout = 0.2

    def execute(self, params):
        time.sleep(3)
        return {"status": "success", "data": 1}


class Backtracking(Good):
    timeout = 0.2

    def execute(self, params):
        re.match(r"(a+)+$", "a" * 40 + "b")
        return {"status": "success", "data": 1}


class Shouting(Good):
    def execute(self, params):
        return {"error": "no such thing", "message": "none"}


class Leaking(Good):
    opened: list = []  # noqa: RUF012

    def open(self):
        self.opened.append(os.pipe())


class Unopened(Good):
    def open(self):
        raise FileNotFoundError("no index")


class Unpicklable(GoodInAProcess):
    def __init__(self):
        self.lock = threading.Lock()


class Short(Good):
    def execute_batch(self, batch):
        return [self.execute(batch[0])]


class Different(Good):
    def execute_batch(self, batch):
        return [{"status": "success", "data": 0} for _ in batch]


class Unguessable(Good):
    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": "^Q.*z$"}},
        "required": ["x"],
    }


class Undescribed(Good):
    parameters = {"type": "object", "properties": {}, "required": ["x"]}  # noqa: RUF012


class Failing(Good):
    def execute(self, params):
        raise ToolError("INVALID_X", "never right")


class Wordless(Good):
    description = " "


class Schemaless(Good):
    parameters = {"type": "object", "properties": {"x": {"type": "whole number"}}}  # noqa: RUF012


class Endless(Good):
    timeout = float("inf")


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        (Raising, "execute raised for {'x': 0}: ZeroDivisionError"),
        (Odd, "INVALID_RESULT for {'x': 2}: the tool's result is not valid: data is a set"),
        (Mutating, "execute changed its arguments for {'x': 2}"),
        (MutatingAsync, "execute changed its arguments for {'x': 2}"),
        (Counting, "keep no state between calls, or declare cacheable = False"),
        (Racing, "at the same time as others, from threads"),
        (Slow, "TIMEOUT for {'x': 2}: the tool gave no answer within 0.2 s"),
        (Backtracking, "TIMEOUT for {'x': 2}: the tool gave no answer within 0.2 s"),
        (Shouting, "the error code 'no such thing' for {'x': 2}; write codes as INVALID_CITY"),
        (Leaking, "each open() and close() leaves something open"),
        (Unopened, "open() failed: tool 'probe' cannot be opened: FileNotFoundError: no index"),
        (Unpicklable, "cannot be pickled (TypeError"),
        (Short, "execute_batch of 6 calls raised, took longer than 5 s, or gave another number of results"),
        (Different, "and in a batch '0'"),
        (Unguessable, "no legal arguments could be made up; give examples=[{...}]"),
        (Undescribed, "required names x, which the schema's properties do not describe"),
        (Failing, "none of 3 calls succeeded (Error [INVALID_X]: never right)"),
        (Wordless, "the description is empty"),
        (Schemaless, "parameters is no JSON Schema 2020-12"),
        (Endless, "timeout is inf; it must be a number of seconds above 0"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_tool_that_breaks_the_contract_is_told_how(kind, finding):
    with pytest.raises(ToolCheckError) as caught:
        check_tool(kind())
    assert finding in str(caught.value)
    assert any(finding in told for told in caught.value.findings)


def test_all_findings_come_at_once():
    class Twice(Good):
        def execute(self, params):
            return {"error": "oh no", "message": params.pop("x")}

    with pytest.raises(ToolCheckError) as caught:
        check_tool(Twice())
    assert len(caught.value.findings) == 6  # for each of three calls: the code, and the argument it took out


def test_examples_are_tried_as_they_are_given():
    class Named(Unguessable):
        def execute(self, params):
            return {"status": "success", "data": params["x"].lower()}

    check_tool(Named(), [{"x": "Quiz"}])
    with pytest.raises(ToolCheckError, match=r"the example .* is not legal: probe: x: 'quiz' does not match"):
        check_tool(Named(), [{"x": "quiz"}])


def test_results_may_differ_where_the_tool_says_so():
    class Clock(Counting):
        cacheable = False

    check_tool(Clock())


def test_what_is_no_tool_is_told():
    with pytest.raises(ToolCheckError, match="not a tool"):
        check_tool(print)
