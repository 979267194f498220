"""Attempts to get out of the sandbox. Each plants something outside and finds it as it was.

An attack that would do nothing anywhere proves nothing, so those on files, network and processes also run without a
sandbox, where they must succeed.
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from agentr1_tools import ToolCall
from agentr1_tools.python_tool import Python
from agentr1_tools.sandbox.limits import Limits
from agentr1_tools.worker import processes

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("no_process_left")]
SECRET = "the-dragon-sleeps-at-noon"


@pytest.fixture(params=["/tmp", "/var/tmp"])
def outside(request):
    """A folder anybody may read and write, so that only the sandbox stands between the code and what lies there."""
    folder = Path(tempfile.mkdtemp(dir=request.param, prefix="agentr1-outside-"))
    folder.chmod(0o777)
    planted = folder / "planted"
    planted.write_text(SECRET, encoding="utf-8")
    planted.chmod(0o666)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def tag():
    """A limit no other run has: it stands in the command line of every process of a run."""
    return Limits(file_bytes=2**24 + random.SystemRandom().randrange(2**20))


@pytest.fixture
def call(open_box, sandbox, tag):
    """Calls the tool in a box; afterwards no process of it is left anywhere on the machine."""

    def run(code, timeout=20.0, groups=None, **limits):
        tool = Python(timeout=timeout)
        tool.sandbox = replace(
            sandbox, limits=replace(tag, **limits), groups=sandbox.groups if groups is None else groups
        )
        box = open_box([tool])
        started = time.perf_counter()
        result = box.call(ToolCall("python", {"code": code}))
        assert time.perf_counter() - started < timeout + 30
        wait_until_nothing_is_left(tag)
        return result

    return run


def left_of(limits):
    """Processes of runs with these limits, wherever they are in the tree of processes, zombies left aside."""
    mark = f"FSIZE={limits.file_bytes}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if mark in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_until_nothing_is_left(limits):
    """On a busy machine a killed process does not end at once; one that was spared would live for minutes."""
    deadline = time.monotonic() + 30
    while left := left_of(limits):
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def both(code, no_sandbox):
    """The outcome without a sandbox."""
    return no_sandbox.run(code, 30.0)


def test_a_file_outside_cannot_be_read(call, no_sandbox, outside):
    code = f"print(open({str(outside / 'planted')!r}).read())"
    assert SECRET in both(code, no_sandbox).stdout
    result = call(code)
    assert result.error == "EXECUTION_ERROR"
    assert "FileNotFoundError" in result.text
    assert SECRET not in json.dumps(result.data)


def test_home_project_and_configuration_are_not_there(call):
    places = [
        str(Path.home()),
        str(Path(__file__).parent),
        "/etc/passwd",
        "/root",
        "/home",
        "/var",
        "/usr/local/bin",
        "/run",
    ]
    assert call(f"import os\n[place for place in {places} if os.path.exists(place)]").text == "[]"


def test_nothing_outside_can_be_written(call, no_sandbox, outside):
    planted = outside / "planted"
    code = f"""
import os
for path in {[str(outside / "new"), str(planted)]}:
    try:
        open(path, "w").write("written")
    except OSError as error:
        print(type(error).__name__)
"""
    assert call(code).ok
    assert os.listdir(outside) == ["planted"]
    assert planted.read_text(encoding="utf-8") == SECRET
    assert both(code, no_sandbox).stdout == ""
    assert planted.read_text(encoding="utf-8") == "written"


def test_the_root_and_the_libraries_are_read_only_and_tmp_is_not(call):
    code = """
import errno, os, sys
refused = []
for folder in ["/", "/usr", "/usr/lib", "/etc", "/dev", os.path.dirname(os.__file__), "/proc/sys/kernel"]:
    try:
        open(os.path.join(folder, "new"), "w")
    except OSError as error:
        refused.append(error.errno in (errno.EROFS, errno.EACCES, errno.ENOENT, errno.EPERM))
print(refused, open("/tmp/new", "w").write("fine"), os.getcwd())
"""
    assert call(code).text == f"{[True] * 7} 4 /tmp"


def test_tmp_is_new_each_time_and_bounded(call, open_box, sandbox):
    tool = Python(timeout=20)
    tool.sandbox = sandbox
    box = open_box([tool])
    assert box.call(ToolCall("python", {"code": "open('/tmp/note', 'w').write('x')"})).ok
    assert box.call(ToolCall("python", {"code": "import os; os.listdir('/tmp')"})).text == "[]"
    fill = "for n in range(9):\n    open(f'/tmp/{n}', 'wb').write(bytes(2**20))"
    assert "No space left" in call(fill, tmp_bytes=4 * 2**20).text
    assert "File too large" in call("open('/tmp/big', 'wb').write(bytes(2**26))").text


def test_loopback_is_another_one(call, no_sandbox):
    hidden = f"agentr1-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{hidden}")
        abstract.listen()
        server.setblocking(False)
        abstract.setblocking(False)
        code = f"""
import socket
for address in [("127.0.0.1", {server.getsockname()[1]}), "\\0{hidden}"]:
    kind = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
    try:
        socket.socket(kind).connect(address)
        print("connected")
    except OSError as error:
        print(type(error).__name__)
"""
        assert call(code).text.split() == ["ConnectionRefusedError"] * 2
        for listening in (server, abstract):
            with pytest.raises(BlockingIOError):
                listening.accept()
        assert both(code, no_sandbox).stdout.split() == ["connected"] * 2
        for listening in (server, abstract):
            listening.accept()[0].close()


@pytest.mark.parametrize("grouped", [True, False])
def test_a_fork_bomb_stays_small(call, sandbox, tag, grouped):
    if grouped and not sandbox.groups:
        pytest.skip("no control group can be made on this machine")
    most = 0
    over = threading.Event()

    def watch():
        nonlocal most
        while not over.is_set():
            most = max(most, len(left_of(tag)))
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    bomb = "import os, time\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        time.sleep(0.05)"
    result = call(bomb, timeout=5.0, groups=sandbox.groups if grouped else (), processes=24)
    over.set()
    watcher.join()
    assert result.error == "TIMEOUT"
    assert 6 < most <= 24 + 4  # with bubblewrap's own
    assert subprocess.run([sys.executable, "-c", ""]).returncode == 0


def test_ten_gigabytes_cannot_be_had(call):
    result = call("bytearray(10 * 2**30)")
    assert result.error == "EXECUTION_ERROR"
    assert "MemoryError" in result.text


def test_many_processes_share_one_limit_where_there_are_control_groups(call, sandbox):
    if not sandbox.groups:
        pytest.skip("no control group can be made on this machine")
    code = """
import os, time
for _ in range(5):
    if os.fork() == 0:
        kept = b"x" * (60 * 2**20)
        time.sleep(600)
print(os.wait())
"""
    alone = "kept = b'x' * (60 * 2**20)\n'it fits'"
    assert call(alone, memory_bytes=96 * 2**20, tmp_bytes=2**20).text == "'it fits'"
    result = call(code, memory_bytes=96 * 2**20, tmp_bytes=2**20)
    assert result.error != "TIMEOUT"  # the kernel killed one of them, or the whole run


def test_an_endless_loop_ends_at_the_limit(call):
    assert call("while True: pass", timeout=1.0).text == "Error [TIMEOUT]: the tool gave no answer within 1 s"


def test_processor_time_has_a_limit_of_its_own(call):
    started = time.perf_counter()
    assert call("while True: pass", timeout=60.0, cpu_seconds=1).error == "TIMEOUT"
    assert time.perf_counter() - started < 50


def test_five_megabytes_of_output_are_cut_and_marked(call):
    result = call("import sys\nfor _ in range(5):\n    sys.stdout.write('x' * 10**6)\nprint()\n'the end'")
    assert result.ok
    assert "bytes cut" in result.data["stdout"]
    assert 10**6 <= len(result.data["stdout"]) < 10**6 + 100
    assert result.data["stdout"].startswith("xxx")
    assert result.data["stdout"].endswith("x\n'the end'\n")
    assert len(result.text) <= 4000


def test_output_without_end_ends_at_the_limit(call):
    assert call("while True: print('x' * 1000)", timeout=1.5).error == "TIMEOUT"


@pytest.mark.parametrize("leave", ["", "os.setsid()"])
def test_a_child_that_holds_stdout_is_not_waited_for(call, leave):
    code = f"import os, time\nif os.fork() == 0:\n    {leave or 'pass'}\n    time.sleep(600)\nprint('done')"
    started = time.perf_counter()
    assert call(code, timeout=60.0).text == "done"
    assert time.perf_counter() - started < 30


def test_ignoring_signals_does_not_help(call):
    code = """
import signal
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass
while True: pass
"""
    assert call(code, timeout=1.0).error == "TIMEOUT"


def test_a_shell_reached_by_a_spelling_reaches_nothing(call, no_sandbox, outside):
    code = f"__import__('o' + 's').system('echo written > {outside}/new') and None"
    assert not call(code).error
    assert os.listdir(outside) == ["planted"]
    both(code, no_sandbox)
    assert sorted(os.listdir(outside)) == ["new", "planted"]


def test_a_symbolic_link_leads_nowhere(call, no_sandbox, outside):
    code = f"""
import os, tempfile
os.chdir(tempfile.mkdtemp())
for number, root in enumerate(["", "/proc/self/root", "/proc/1/root", "/proc/self/cwd/../../../.."]):
    os.symlink(root + {str(outside / "planted")!r}, str(number))
    try:
        print(open(str(number)).read())
        open(str(number), "w").write("written")
    except OSError as error:
        print(type(error).__name__)
"""
    result = call(code)
    assert result.ok
    assert SECRET not in result.text
    assert (outside / "planted").read_text(encoding="utf-8") == SECRET
    assert SECRET in both(code, no_sandbox).stdout
    assert (outside / "planted").read_text(encoding="utf-8") == "written"


def test_the_environment_of_others_cannot_be_read(call, no_sandbox, monkeypatch):
    monkeypatch.setenv("AGENTR1_PLANTED", SECRET)
    as_the_same_user = no_sandbox.launcher.command(Limits(), 1, "")
    planted = subprocess.Popen([*as_the_same_user, "sleep", "600"])
    code = """
import glob, os
print(dict(os.environ))
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        print(open(path, "rb").read())
    except OSError:
        pass
print(len(glob.glob("/proc/[0-9]*")))
"""
    name = Path(f"/proc/{planted.pid}/comm")
    try:
        while name.read_text(encoding="utf-8") != "sleep\n":  # until then it is root's
            assert planted.poll() is None
        assert SECRET in both(code, no_sandbox).stdout
        result = call(code)
    finally:
        planted.kill()
        planted.wait()
    assert SECRET not in result.text
    assert "AGENTR1" not in result.text
    assert int(result.text.splitlines()[-1]) < 5  # its own processes and nobody else's


@pytest.mark.parametrize(
    "attempt",
    [
        "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "resource.setrlimit(resource.RLIMIT_NPROC, (4096, 4096))",
        "os.setuid(0)",
        "os.chroot('/tmp')",
        "os.mknod('/tmp/disk', 0o60666, os.makedev(254, 0))",
        "check(libc.unshare(0x10000000))",  # CLONE_NEWUSER
        "check(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))",
        "check(libc.mount(None, b'/', None, 32, None))",  # MS_REMOUNT
    ],
)
def test_no_right_can_be_gained(call, attempt):
    code = f"""
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
def check(status):
    if status: raise OSError(ctypes.get_errno(), "refused")
try:
    {attempt}
    print("gained")
except (OSError, ValueError):
    print("refused")
"""
    assert call(code).text == "refused"


def test_twenty_runs_two_at_a_time_leave_no_process_and_no_descriptor(open_box, sandbox, tag):
    tool = Python(timeout=30)
    tool.sandbox = replace(sandbox, limits=tag)
    box = open_box([tool], workers=2)
    calls = [ToolCall("python", {"code": "import time; time.sleep(0.1); print('hello')"})] * 2
    box.call_many(calls)
    family = sorted(processes.descendants(os.getpid()))
    before = [descriptors(pid) for pid in [os.getpid(), *family]]
    for _ in range(10):
        assert [result.text for result in box.call_many(calls)] == ["hello"] * 2
    wait_until_nothing_is_left(tag)
    assert sorted(processes.descendants(os.getpid())) == family
    assert [descriptors(pid) for pid in [os.getpid(), *family]] == before
    assert not [folder for parent in sandbox.groups for pid in family for folder in parent.glob(f"agentr1-{pid}-*")]


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))
