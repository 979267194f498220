"""Timeouts that hold, and nothing left behind: each tool here misbehaves in a way of its own."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from agentr1_tools import BaseTool, ToolCall
from agentr1_tools.errors import ToolOpenError
from agentr1_tools.worker import processes, runner

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("no_process_left")]
CALL = ToolCall("probe", {"x": 1})


def wait_until_gone(pid):
    """The process is not there any more, not even as a zombie."""
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def backtrack(note):
    re.match(r"(a+)+$", "a" * 64 + "b")


def ignore_sigterm(note):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def hold_stdout_in_a_fork(note):
    if os.fork() == 0:
        note(os.getpid())
        time.sleep(600)
    time.sleep(600)


def hide_in_a_daemon(note):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            note(os.getpid())
            time.sleep(600)
        os._exit(0)
    os.wait()
    time.sleep(600)


def start_a_shell(note):
    shell = subprocess.Popen("sleep 600 & echo $!; sleep 600", shell=True, stdout=subprocess.PIPE)
    note(int(shell.stdout.readline()))
    note(shell.pid)
    shell.wait()


@pytest.mark.parametrize(
    "misbehave", [backtrack, ignore_sigterm, hold_stdout_in_a_fork, hide_in_a_daemon, start_a_shell]
)
def test_a_call_is_cut_off_at_its_limit_and_leaves_nothing(open_box, make_tool, tmp_path, misbehave):
    notes = tmp_path / "pids"

    def note(pid):
        with notes.open("a", encoding="utf-8") as lines:
            lines.write(f"{pid}\n")

    def execute(params):
        note(os.getpid())
        if params["x"]:
            misbehave(note)
        return {"status": "success", "data": "fine"}

    box = open_box([make_tool(execute, timeout=2.0, cacheable=False)])
    before = len(processes.descendants(os.getpid()))
    for _ in range(2):
        started = time.perf_counter()
        result = box.call(CALL)
        assert time.perf_counter() - started < 2 + 30  # generous: other tests share the cores
        assert result.error == "TIMEOUT"
        assert result.text == "Error [TIMEOUT]: the tool gave no answer within 2 s"
        assert result.metrics["seconds"] >= 2
        assert box.call(ToolCall("probe", {"x": 0})).data == "fine"
        assert len(processes.descendants(os.getpid())) <= before
    box.close()
    pids = notes.read_text(encoding="utf-8").split()
    assert len(pids) >= 4
    for pid in pids:
        wait_until_gone(pid)


def test_the_model_cannot_set_the_limit(open_box, make_tool):
    box = open_box([make_tool(lambda params: backtrack(None), timeout=0.1)])
    started = time.perf_counter()
    assert box.call(ToolCall("probe", {"x": 1, "timeout": 600})).error == "TIMEOUT"
    assert time.perf_counter() - started < 0.1 + 30


def test_a_child_left_running_by_a_call_that_succeeded_is_killed(open_box, make_tool):
    def leave_a_child(params):
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
        return {"status": "success", "data": pid}

    box = open_box([make_tool(leave_a_child, timeout=5, cacheable=False)])
    result = box.call(CALL)
    assert result.ok
    wait_until_gone(result.data)
    assert box.call(CALL).ok


def test_a_child_the_tool_opened_with_stays(open_box, make_tool):
    class Helper(BaseTool):
        name, description, timeout, cacheable = "probe", "Keeps a helper process.", 5, False

        def open(self):
            self.helper = subprocess.Popen(["sleep", "600"])

        def execute(self, params):
            subprocess.Popen(["sleep", "600"])
            return {"status": "success", "data": [self.helper.pid, self.helper.poll()]}

    box = open_box([Helper()])
    first, second = (box.call(ToolCall("probe")) for _ in range(2))
    assert first.data == second.data
    assert first.data[1] is None
    box.close()
    wait_until_gone(first.data[0])


@pytest.mark.parametrize(
    ("execute", "code"),
    [
        (lambda params: os._exit(0), "EXECUTION_ERROR"),
        (lambda params: os.kill(os.getpid(), signal.SIGSEGV), "EXECUTION_ERROR"),
        (lambda params: sys.exit(3), "EXECUTION_ERROR"),
        (lambda params: 1 / 0, "EXECUTION_ERROR"),
        (lambda params: {"status": "success", "data": object()}, "INVALID_RESULT"),
        (lambda params: None, "INVALID_RESULT"),
    ],
)
def test_a_crash_is_an_error_and_the_next_call_works(open_box, make_tool, execute, code):
    box = open_box(
        [make_tool(lambda params: execute(params) if params["x"] else {"status": "success", "data": 7}, timeout=5)]
    )
    assert box.call(CALL).error == code
    assert box.call(ToolCall("probe", {"x": 0})).data == 7


def test_a_worker_that_was_killed_between_two_calls_is_replaced(open_box, make_tool):
    box = open_box([make_tool(lambda params: {"status": "success", "data": os.getpid()}, timeout=5, cacheable=False)])
    first = box.call(CALL).data
    os.kill(first, signal.SIGKILL)
    wait_until_gone(first)
    second = box.call(CALL)
    assert second.ok
    assert second.data != first


def test_a_guardian_that_cannot_fork_is_an_error(open_box, make_tool, monkeypatch):
    monkeypatch.setattr(runner, "guard", lambda *_: os._exit(1))
    with pytest.raises(ToolOpenError, match="no process can be started"):
        open_box([make_tool(lambda params: {})])


def test_an_interrupted_caller_leaves_the_box_in_order(open_box, make_tool, tmp_path):
    begun = tmp_path / "begun"

    def slow(params):
        begun.touch()
        time.sleep(params["x"])
        return {"status": "success", "data": "fine"}

    def interrupt():
        while not begun.exists():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    box = open_box([make_tool(slow, timeout=60)], workers=1)
    interrupter = threading.Thread(target=interrupt, daemon=True)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        box.call(ToolCall("probe", {"x": 50}))
    interrupter.join()
    assert box.call(ToolCall("probe", {"x": 0})).data == "fine"


def test_workers_are_used_again_and_are_not_this_process(open_box, make_tool):
    box = open_box([make_tool(lambda params: {"status": "success", "data": os.getpid()}, cacheable=False)])
    pids = {box.call(CALL).data for _ in range(5)}
    assert len(pids) == 1
    assert os.getpid() not in pids


def test_calls_at_the_same_time_use_several_workers_up_to_the_limit(open_box, make_tool, tmp_path):
    def meet(params):
        (tmp_path / str(os.getpid())).touch()
        while len(os.listdir(tmp_path)) < 3:
            time.sleep(0.01)
        return {"status": "success", "data": os.getpid()}

    box = open_box([make_tool(meet, timeout=60, cacheable=False)], workers=3)
    results = box.call_many([CALL] * 9)
    assert len({result.data for result in results}) == 3


def test_opening_is_not_on_the_clock_of_a_call(open_box, make_tool):
    tool = make_tool(lambda params: {"status": "success", "data": 1}, timeout=1.0)
    tool.open = lambda: time.sleep(1.5)
    box = open_box([tool])
    result = box.call(CALL)
    assert result.ok
    assert result.metrics["seconds"] < 1.0


def test_a_tool_that_cannot_open_is_named_and_leaves_nothing(open_box, make_tool):
    tool = make_tool(lambda params: {})
    tool.open = lambda: 1 / 0
    with pytest.raises(ToolOpenError, match=r"tool 'probe' cannot be opened: ZeroDivisionError"):
        open_box([tool])
    tool.open = lambda: os._exit(1)
    with pytest.raises(ToolOpenError, match="ended while open"):
        open_box([tool])


def test_what_a_tool_prints_does_not_reach_stdout(open_box, make_tool, capfd):
    def chatter(params):
        print("chatter")
        os.write(1, b"more chatter\n")
        return {"status": "success", "data": 1}

    assert open_box([make_tool(chatter)]).call(CALL).ok
    out, err = capfd.readouterr()
    assert out == ""
    assert "chatter" in err


def test_an_async_tool_that_is_not_cooperative_runs_in_a_worker(open_box):
    class Slow(BaseTool):
        name, description, timeout = "probe", "Async.", 5

        async def execute(self, params):
            return {"status": "success", "data": os.getpid()}

    assert open_box([Slow()]).call(ToolCall("probe")).data != os.getpid()


def test_closing_cancels_what_runs(open_box, make_tool, tmp_path):
    begun, results = tmp_path / "begun", []
    box = open_box([make_tool(lambda params: begun.touch() or time.sleep(600), timeout=60)])
    caller = threading.Thread(target=lambda: results.append(box.call(CALL)))
    caller.start()
    while not begun.exists():
        time.sleep(0.01)
    box.close()
    caller.join(30)
    assert [result.error for result in results] == ["CANCELLED"]
    assert box.call(CALL).error == "CANCELLED"


def test_a_forked_child_gets_workers_of_its_own(open_box, make_tool):
    box = open_box([make_tool(lambda params: {"status": "success", "data": os.getpid()}, timeout=5, cacheable=False)])
    worker = box.call(CALL).data
    pid = os.fork()
    if pid == 0:
        result = box.call(CALL)
        box.close()
        os._exit(0 if result.ok and result.data != worker else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert box.call(CALL).data == worker


def test_a_box_that_is_dropped_closes_itself(make_tool):
    from agentr1_tools import ToolBox

    box = ToolBox([make_tool(lambda params: {"status": "success", "data": 1})])
    assert box.call(CALL).ok
    del box


def test_the_way_to_a_worker_is_short(open_box, make_tool):
    box = open_box([make_tool(lambda params: {"status": "success", "data": 1}, cacheable=False)])
    seconds = []
    for _ in range(300):
        started = time.perf_counter()
        box.call(CALL)
        seconds.append(time.perf_counter() - started)
    assert sorted(seconds)[150] < 0.01  # 0.1 to 0.2 ms on an idle core


def test_a_tool_of_a_module_comes_from_the_nursery(open_box, tmp_path, monkeypatch):
    (tmp_path / "hung_tools.py").write_text(
        "import os, subprocess\n"
        "from agentr1_tools import tool\n"
        "@tool(timeout=3, cacheable=False)\n"
        "def nap(seconds: float, notes: str) -> list[int]:\n"
        "    '''Sleep.'''\n"
        "    shell = subprocess.Popen(['sh', '-c', f'setsid sleep {seconds} & echo $!; wait'], stdout=-1)\n"
        "    child = int(shell.stdout.readline())\n"
        "    with open(notes, 'a') as lines:\n"
        "        print(os.getpid(), shell.pid, child, file=lines)\n"
        "    shell.wait()\n"
        "    return [os.getpid(), os.getppid()]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import hung_tools

    notes = tmp_path / "pids"
    box = open_box([hung_tools.nap])
    worker, parent = box.call(ToolCall("nap", {"seconds": 0, "notes": str(notes)})).data
    assert parent != os.getpid()
    assert box.call(ToolCall("nap", {"seconds": 60, "notes": str(notes)})).error == "TIMEOUT"
    second, again = box.call(ToolCall("nap", {"seconds": 0, "notes": str(notes)})).data
    assert second != worker
    assert again == parent
    box.close()
    for pid in notes.read_text(encoding="utf-8").split():
        wait_until_gone(pid)
    del sys.modules["hung_tools"]
