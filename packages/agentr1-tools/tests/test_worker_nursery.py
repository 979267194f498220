import os
import pickle
import signal
import socket
import subprocess
import sys
import time

import pytest
from agentr1_tools import load_tool
from agentr1_tools.worker.channel import Channel
from agentr1_tools.worker.nursery import Nursery, NurseryError, shared


@pytest.fixture
def nursery(no_process_left):
    nursery = Nursery()
    yield nursery
    nursery.close()


def fork(nursery, tool):
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            return nursery.fork(tool, theirs.fileno()), Channel(ours)
        except NurseryError:
            ours.close()
            raise


def test_it_forks_workers_that_are_not_our_children(nursery):
    tool = pickle.dumps(load_tool("calculator"))
    workers = [fork(nursery, tool) for _ in range(3)]
    for pid, channel in workers:
        assert channel.receive(10)["ready"]
        channel.send({"params": {"expression": "6 * 7"}, "timeout": 1})
        assert channel.receive(5)["data"] == 42
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        channel.close()


def test_a_killed_worker_leaves_no_zombie(nursery):
    pid, channel = fork(nursery, pickle.dumps(load_tool("calculator")))
    channel.receive(10)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    channel.close()


def test_starting_again_is_fast(nursery):
    tool = pickle.dumps(load_tool("calculator"))
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        _, channel = fork(nursery, tool)
        channel.receive(10)
        seconds.append(time.perf_counter() - started)
        channel.close()
    assert min(seconds) < 0.5  # an interpreter with these imports takes several times that


def test_what_cannot_be_imported_there_is_refused_and_the_nursery_goes_on(nursery):
    with pytest.raises(NurseryError, match="ModuleNotFoundError"):
        fork(nursery, b"cno_such_module\nTool\n.")
    with pytest.raises(NurseryError, match="open large things in open"):
        fork(nursery, b"x" * (17 * 1024 * 1024))
    _, channel = fork(nursery, pickle.dumps(load_tool("calculator")))
    assert channel.receive(10)["ready"]
    channel.close()


def test_a_nursery_that_was_killed_is_replaced(no_process_left):
    shared.acquire()
    try:
        first = shared.get()
        assert shared.get() is first
        os.kill(first._process.pid, signal.SIGKILL)
        first._process.wait(5)
        second = shared.get()
        assert second is not first
        assert second.alive()
    finally:
        shared.release()


def test_everything_ends_with_the_parent():
    program = (
        "import os\n"
        "from agentr1_tools import ToolBox, load_tool\n"
        "tool = load_tool('calculator')\n"
        "tool.cooperative = False\n"
        "box = ToolBox([tool])\n"
        "box.open()\n"
        "from agentr1_tools.worker.processes import descendants\n"
        "print(*descendants(os.getpid()), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    pids = done.stdout.split()
    assert len(pids) == 2
    deadline = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)
