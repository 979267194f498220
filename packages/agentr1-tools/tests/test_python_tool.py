import pytest
from agentr1_tools import ToolBox, ToolCall, available, load_tool


@pytest.fixture(scope="module")
def box(sandbox):
    tool = load_tool("python", timeout=20)
    tool.sandbox = sandbox
    with ToolBox([tool]) as opened:
        yield opened


def run(box, code):
    return box.call(ToolCall("python", {"code": code}))


def test_it_enters_by_the_plugin_door():
    assert available()["python"].entry_point == "agentr1_tools.python_tool:Python"
    tool = load_tool("python")
    assert (tool.risky, tool.cacheable, tool.timeout) == (True, False, 5.0)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("print('hello')", "hello"),
        ("17 * 23", "391"),
        ("total = sum(range(10))\nprint('sum')\ntotal", "sum\n45"),
        ("x = 1", "(no output)"),
        ("import math, json, re, datetime, random, statistics, decimal\nmath.pi", "3.141592653589793"),
        ("'ä' + '龍'", "'ä龍'"),
        ("import threading\nt = threading.Thread(target=print, args=('thread',))\nt.start(); t.join()", "thread"),
        ("from multiprocessing import Pool\nPool(2).map(abs, [-1, -2])", "[1, 2]"),
    ],
)
def test_the_model_reads_what_is_printed_and_the_last_value(box, code, text):
    result = run(box, code)
    assert (result.ok, result.text) == (True, text)
    assert result.data["exit_code"] == 0


def test_what_goes_to_stderr_is_read_too(box):
    result = run(box, "import sys\nprint('out')\nprint('careful', file=sys.stderr)")
    assert result.text == "out\ncareful"
    assert result.data["stderr"] == "careful\n"


def test_a_failure_shows_the_traceback_and_what_was_printed_before(box):
    result = run(box, "print('so far')\nundefined_name")
    assert result.error == "EXECUTION_ERROR"
    assert 'File "<code>", line 2' in result.text
    assert "NameError: name 'undefined_name' is not defined" in result.text
    assert "so far" in result.text
    assert result.data["stdout"] == "so far\n"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import sys; sys.exit(4)", "the program ended with exit code 4"),
        ("import os; os.kill(os.getpid(), 11)", "the program was ended by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL; it may have used too much memory"),
        ("import os; os._exit(255)", "the program ended with exit code 255"),
    ],
)
def test_an_end_without_a_traceback_is_told_in_words(box, code, told):
    result = run(box, code)
    assert result.error == "EXECUTION_ERROR"
    assert told in result.text


def test_nothing_is_kept_between_calls(box):
    assert run(box, "kept = 1").ok
    assert "NameError" in run(box, "kept").text


def test_arguments_are_checked_before_anything_starts(box):
    assert box.call(ToolCall("python", {})).error == "INVALID_ARGUMENT"
    assert box.call(ToolCall("python", {"code": "1", "timeout": 600})).error == "INVALID_ARGUMENT"
    assert box.call(ToolCall("python", {"code": "#" * 100_001})).error == "INVALID_ARGUMENT"
    assert "SyntaxError" in run(box, "print(").text
    assert run(box, "'\0'").error == "EXECUTION_ERROR"


def test_calls_of_one_response_run_together(box):
    codes = [f"import time; time.sleep(0.3); {number}" for number in range(4)]
    results = box.call_many([ToolCall("python", {"code": code}) for code in codes])
    assert [result.text for result in results] == ["0", "1", "2", "3"]
