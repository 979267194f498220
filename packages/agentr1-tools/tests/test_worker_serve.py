import os
import signal
import socket

import pytest
from agentr1_tools.worker.channel import Channel, ChannelClosed
from agentr1_tools.worker.serve import enter


@pytest.fixture
def serve():
    """Forks a worker for a tool; gives the channel and its process id."""
    started = []

    def start(tool):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            enter(theirs.fileno(), tool)
        theirs.close()
        channel = Channel(ours)
        started.append((pid, channel))
        return channel, pid

    yield start
    for pid, channel in started:
        channel.close()
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue


def test_a_worker_says_ready_answers_and_ends_with_its_channel(serve, make_tool, tmp_path):
    tool = make_tool(lambda params: {"status": "success", "data": params["x"] * 2})
    tool.close = (tmp_path / "closed").touch
    channel, pid = serve(tool)
    assert channel.receive(30) == {"ready": True, "error": ""}
    channel.send({"params": {"x": 21}, "timeout": 1})
    assert channel.receive(30) == {"status": "success", "data": 42, "error": None, "text": "42", "metrics": {}}
    channel.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (tmp_path / "closed").exists()


def test_a_tool_that_does_not_open_says_why(serve, make_tool):
    def fail():
        raise FileNotFoundError("no index")

    tool = make_tool(lambda params: {})
    tool.open = fail
    channel, _ = serve(tool)
    assert channel.receive(30) == {"ready": False, "error": "FileNotFoundError: no index"}


def test_the_worker_is_cut_off_from_its_parent(serve, make_tool):
    read, write = os.pipe()
    os.set_inheritable(write, True)

    def look(params):
        descriptors = []
        for descriptor in range(3, 64):
            try:
                os.fstat(descriptor)
            except OSError:
                continue
            descriptors.append(descriptor)
        return {"status": "success", "data": [descriptors, os.getsid(0) == os.getpid(), os.read(0, 1) == b""]}

    channel, _ = serve(make_tool(look))
    os.close(write)
    assert os.read(read, 1) == b""  # the worker does not hold the other end
    os.close(read)
    channel.receive(30)
    channel.send({"params": {}, "timeout": 1})
    assert channel.receive(30)["data"] == [[3], True, True]


def test_a_worker_without_a_parent_is_ended_by_the_kernel(serve, make_tool, monkeypatch):
    from agentr1_tools.worker import serve as module

    def hang(params):
        while True:
            pass

    monkeypatch.setattr(module, "_BACKSTOP_SECONDS", 0.1)
    channel, pid = serve(make_tool(hang))
    channel.receive(30)
    channel.send({"params": {}, "timeout": 0.2})
    with pytest.raises(ChannelClosed):
        channel.receive(30)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGALRM
