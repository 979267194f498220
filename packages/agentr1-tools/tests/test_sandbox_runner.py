import os
import threading
import time

import pytest
from agentr1_tools import ToolBox, ToolCall
from agentr1_tools.cli import main
from agentr1_tools.errors import SandboxUnavailableError, ToolOpenError
from agentr1_tools.python_tool import Python
from agentr1_tools.sandbox.runner import SandboxRunner
from agentr1_tools.sandbox.unsafe import UnsafeSandboxWarning

pytestmark = pytest.mark.usefixtures("no_process_left")


def test_a_box_without_a_sandbox_does_not_open(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolOpenError, match=r"tool 'python' cannot be opened: .*`apt install bubblewrap`"):
        ToolBox(["python"]).open()
    result = ToolBox(["python"]).call(ToolCall("python", {"code": "1"}))
    assert (result.error, "apt install bubblewrap" in result.text) == ("SANDBOX_ERROR", True)


def test_the_command_says_it_in_one_line(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["call", "python", '{"code": "1"}']) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert "`apt install bubblewrap`" in told.err


def test_the_warning_reaches_whoever_opens_the_box(monkeypatch, no_sandbox):
    path = no_sandbox.launcher.drop
    monkeypatch.setenv("PATH", path.rpartition("/")[0] if path else "/nowhere")
    monkeypatch.setattr("agentr1_tools.sandbox.sandbox._bubblewrap", _none)
    box = ToolBox([Python(allow_unsafe_subprocess=True, timeout=20)])
    with pytest.warns(UnsafeSandboxWarning, match="no security boundary"):
        box.open()
    with box:
        assert box.call(ToolCall("python", {"code": "6 * 7"})).text == "42"
        straggler = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n'left one'"
        assert box.call(ToolCall("python", {"code": straggler})).text == "'left one'"


def _none(settings):
    raise SandboxUnavailableError("there is none")


def test_closing_the_box_ends_what_runs(sandbox):
    tool = Python(timeout=60)
    tool.sandbox = sandbox
    box = ToolBox([tool])
    box.open()
    results = []
    caller = threading.Thread(
        target=lambda: results.append(box.call(ToolCall("python", {"code": "import time; time.sleep(600)"})))
    )
    caller.start()
    time.sleep(0.5)
    box.close()
    caller.join(30)
    assert [result.error for result in results] == ["CANCELLED"]
    assert not [folder for parent in sandbox.groups for folder in parent.glob("agentr1-*") if is_left(folder)]


def is_left(folder):
    return not os.path.exists(f"/proc/{folder.name.split('-')[1]}")


def test_a_runner_that_is_not_open_answers_so():
    assert SandboxRunner(Python(), 1).run({"code": "1"}).error == "SANDBOX_ERROR"


def test_the_time_a_call_takes_is_the_tools_own_limit(open_box, sandbox):
    tool = Python(timeout=0.5)
    tool.sandbox = sandbox
    result = open_box([tool]).call(ToolCall("python", {"code": "while True: pass"}))
    assert result.text == "Error [TIMEOUT]: the tool gave no answer within 0.5 s"
