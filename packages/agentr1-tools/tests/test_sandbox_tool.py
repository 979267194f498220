from dataclasses import replace
from typing import ClassVar

import pytest
from agentr1_tools import SandboxTool, ToolCall
from agentr1_tools.errors import ErrorCode
from agentr1_tools.sandbox.bubblewrap import Bubblewrap


class Counting(SandboxTool):
    """A third party's tool: it makes the code out of its arguments, and a result out of the output."""

    name = "count"
    description = "Count the words of a text."
    parameters: ClassVar = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    timeout = 20.0

    def code(self, params):
        return f"print(len({params['text']!r}.split()))"

    def answer(self, outcome):
        if outcome.exit_code:
            return super().answer(outcome)
        return {"status": "success", "data": int(outcome.stdout)}


def with_sandbox(tool, sandbox):
    tool.sandbox = sandbox
    return tool


def test_a_tool_says_what_runs_and_what_it_means(open_box, sandbox):
    box = open_box([with_sandbox(Counting(), sandbox)])
    result = box.call(ToolCall("count", {"text": "a dragon's tail'"}))
    assert (result.data, result.text) == (3, "3")


def test_a_tool_outside_a_box_opens_itself(sandbox):
    assert Counting().execute({"text": "one two"})["data"] == 2


def test_a_sandbox_that_stops_working_is_an_error_of_its_own(sandbox):
    gone = replace(sandbox, launcher=Bubblewrap("/nowhere/bwrap", sandbox.launcher.interpreter), groups=())
    with pytest.raises(Exception, match="cannot start") as raised:
        with_sandbox(Counting(), gone).execute({"text": ""})
    assert raised.value.code == ErrorCode.SANDBOX_ERROR
    hidden = replace(sandbox.launcher, interpreter=replace(sandbox.launcher.interpreter, path="/nowhere/python"))
    with pytest.raises(Exception, match="cannot start: bwrap: execvp /nowhere/python") as raised:
        with_sandbox(Counting(), replace(sandbox, launcher=hidden)).execute({"text": ""})
    assert raised.value.code == ErrorCode.SANDBOX_ERROR


def test_limits_may_be_a_mapping():
    assert Counting(limits={"processes": 4}).settings.limits.processes == 4


def test_code_has_to_be_defined():
    with pytest.raises(NotImplementedError, match=r"must define code\(params\)"):
        SandboxTool().code({})


def test_the_limit_is_the_classs_or_the_one_given():
    assert Counting().timeout == 20.0
    assert Counting(timeout=3.0).timeout == 3.0
