"""SIGTERM is noted, and the handler that was there comes back. Whole runs: integration_tests/test_faults.py."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from agentr1_train.stopping import StopRequest, siblings


def test_sigterm_is_noted_while_it_is_entered() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        assert not stop.requested()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested()
        os.kill(os.getpid(), signal.SIGTERM)  # launchers send it twice
        assert stop.requested()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_lost_rank_is_told_before_the_launchers_signal_ends_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler comes back with any other error, and where there is no other rank."""
    before = signal.getsignal(signal.SIGTERM)
    for ranks, told, after in (
        ("2", "[gloo] Connection closed by peer [127.0.0.1]:1234", signal.SIG_IGN),
        ("2", "shapes do not match", before),
        ("1", "Connection closed by peer", before),
    ):
        monkeypatch.setenv("WORLD_SIZE", ranks)
        try:
            with pytest.raises(RuntimeError), StopRequest():
                raise RuntimeError(told)
            assert signal.getsignal(signal.SIGTERM) is after
        finally:
            signal.signal(signal.SIGTERM, before)


def test_another_thread_is_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def enter() -> None:
        with StopRequest() as stop:
            assert not stop.requested()
            assert signal.getsignal(signal.SIGTERM) is before

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()


def test_the_watch_of_several_ranks_opens_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_SIZE", "2")
    open_files = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with StopRequest():
            assert any(thread.name == "agentr1-stop" for thread in threading.enumerate())
    for thread in threading.enumerate():
        if thread.name == "agentr1-stop":
            thread.join(timeout=10)
    assert len(os.listdir("/proc/self/fd")) == open_files


RANKS = """
import os, subprocess, sys
rank = [sys.executable, "-c", "import time; time.sleep(300)"]
asked = [sys.executable, "-c", "from agentr1_train.stopping import siblings; print(siblings())"]
other = subprocess.Popen(rank)
print(subprocess.run(asked, capture_output=True, text=True).stdout.strip())
other.kill()
os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
print(subprocess.run(asked, capture_output=True, text=True).stdout.strip())
"""


def test_ranks_of_a_launcher_are_counted_alive() -> None:
    """A killed one does not count, though nobody has waited for it yet."""
    assert siblings() is None or siblings() >= 1
    done = subprocess.run([sys.executable, "-c", RANKS], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.split() == ["2", "1"]
