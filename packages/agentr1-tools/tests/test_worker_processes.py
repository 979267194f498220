import os
import signal
import subprocess
import sys
import time

import pytest
from agentr1_tools.worker import processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="trees of processes are read from Linux' /proc")

# A process that starts a child, which starts a grandchild; all ignore SIGTERM. It prints when the tree stands.
TREE = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if os.fork():
        break
else:
    print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def tree():
    process = subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == b"up\n"
    yield process
    processes.kill_tree(process.pid)
    process.wait(30)
    process.stdout.close()


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # the second when it is reaped between opening and reading
        return False


def test_descendants_are_all_found(tree):
    below = processes.descendants(tree.pid)
    assert len(below) == 2
    assert tree.pid in processes.descendants(os.getpid())
    assert set(below) <= set(processes.descendants(os.getpid()))


def test_kill_tree_ends_all_of_it_and_frees_the_pipe(tree):
    below = processes.descendants(tree.pid)
    processes.kill_tree(tree.pid)
    assert tree.stdout.read() == b""  # ends only when the last holder is gone
    assert tree.wait(30) == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in below):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_kill_below_spares_the_root_and_what_is_kept(tree):
    child, grandchild = processes.descendants(tree.pid)
    processes.kill_below(tree.pid, keep=frozenset({child}))
    deadline = time.monotonic() + 30
    while alive(grandchild):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert alive(child)
    assert tree.poll() is None


def test_a_handle_knows_when_its_process_has_ended(tree):
    handle = processes.Handle(tree.pid)
    below = processes.descendants(tree.pid)
    assert handle.alive()
    handle.kill_tree()
    assert tree.stdout.read() == b""
    deadline = time.monotonic() + 30
    while handle.alive() or any(alive(pid) for pid in below):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    handle.kill_tree()
    handle.close()
    handle.close()


def test_a_handle_of_a_dead_process_still_ends_its_group():
    program = "import os, time\nif os.fork() == 0: print('up', flush=True); time.sleep(600)"
    leader = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    handle = processes.Handle(leader.pid)
    assert leader.stdout.readline() == b"up\n"
    deadline = time.monotonic() + 30
    while handle.alive():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    handle.kill_tree()
    assert leader.stdout.read() == b""
    assert leader.wait(30) == 0
    leader.stdout.close()
    handle.close()


@pytest.mark.parametrize("pid", [0, -1])
def test_no_handle_names_a_whole_group(pid):
    with pytest.raises(ValueError, match="no single process"):
        processes.Handle(pid)


def test_killing_what_is_gone_is_silent():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    processes.kill_tree(process.pid)


def test_has_children_reaps_nothing():
    program = (
        "import os\n"
        "from agentr1_tools.worker.processes import has_children, reap_strays\n"
        "assert not has_children()\n"
        "pid = os.fork()\n"
        "if pid == 0: os._exit(7)\n"
        "os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)\n"  # it has ended, and is not reaped
        "assert has_children()\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
        "if os.fork() == 0: os._exit(0)\n"
        "os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)\n"
        "reap_strays()\n"
        "assert not has_children()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
