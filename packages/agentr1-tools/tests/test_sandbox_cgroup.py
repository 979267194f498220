"""Control groups, on folders laid out as the kernel lays them out; `test_sandbox_escapes.py` uses the kernel's own."""

import os
import subprocess
from pathlib import Path

import pytest
from agentr1_tools.sandbox import cgroup
from agentr1_tools.sandbox.limits import Limits

LIMITS = Limits(memory_bytes=1000, tmp_bytes=24, processes=8)


def test_version_2_is_tried_below_and_beside_the_own_group(tmp_path):
    (tmp_path / "cgroup.controllers").touch()
    own = tmp_path / "user.slice/run.scope"
    assert cgroup.candidates(tmp_path, "0::/user.slice/run.scope\n") == [(own,), (own.parent,)]
    assert cgroup.candidates(tmp_path, "0::/\n") == [(tmp_path,)]


def test_version_1_needs_both_controllers_and_uses_the_own_groups(tmp_path):
    membership = "4:memory:/jobs/7\n8:pids:/\n2:cpu,cpuacct:/\n0::/\n"
    assert cgroup.candidates(tmp_path, membership) == []
    (tmp_path / "memory/jobs/7").mkdir(parents=True)
    (tmp_path / "pids").mkdir()
    assert cgroup.candidates(tmp_path, membership) == [(tmp_path / "memory/jobs/7", tmp_path / "pids")]
    hidden = membership.replace("/jobs/7", "/what/the/host/calls/it")
    assert cgroup.candidates(tmp_path, hidden) == [(tmp_path / "memory", tmp_path / "pids")]


def test_no_control_groups_are_no_candidates(tmp_path):
    assert cgroup.candidates(tmp_path, "") == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("memory.max", "1024"),
        ("memory.swap.max", "0"),
        ("memory.oom.group", "1"),
        ("memory.limit_in_bytes", "1024"),
        ("pids.max", "12"),
    ],
)
def test_each_limit_goes_into_its_file(file, text):
    assert cgroup.settings(LIMITS)[file] == text


def test_a_folder_without_limits_is_no_group_and_does_not_stay(tmp_path):
    with pytest.raises(OSError, match="no limits"), cgroup.group((tmp_path,), LIMITS):
        pass
    assert os.listdir(tmp_path) == []


def test_without_a_place_nothing_is_put_before_the_command():
    with cgroup.group((), LIMITS) as join:
        assert join == []


def test_joining_comes_before_the_command_and_a_failure_to_join_prevents_it(tmp_path):
    line = ["/bin/sh", "-c", cgroup._JOIN, "sh", str(tmp_path), "--", "/bin/sh", "-c", "echo $$ $0", "ran it"]
    done = subprocess.run(line, capture_output=True, text=True)
    pid = (tmp_path / "cgroup.procs").read_text(encoding="utf-8").strip()
    assert done.stdout.split() == [pid, "ran", "it"]
    line[4] = str(tmp_path / "absent")
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")


def test_groups_of_processes_that_are_gone_are_removed(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / f"agentr1-{gone.pid}-1").mkdir()
    (tmp_path / f"agentr1-{os.getpid()}-1").mkdir()
    (tmp_path / "agentr1-other").mkdir()
    cgroup.sweep((tmp_path,))
    assert sorted(os.listdir(tmp_path)) == sorted([f"agentr1-{os.getpid()}-1", "agentr1-other"])


def test_a_group_is_emptied_before_it_is_removed(sandbox):
    if not sandbox.groups:
        pytest.skip("no control group can be made on this machine")
    with cgroup.group(sandbox.groups, Limits(memory_bytes=1 << 26, tmp_bytes=24, processes=8)) as join:
        sleeper = subprocess.Popen([*join, "/bin/sleep", "600"])
        folder = Path(join[4])
        while f"{sleeper.pid}" not in (folder / "cgroup.procs").read_text(encoding="utf-8").split():
            assert sleeper.poll() is None
    assert sleeper.wait(10) == -9
    assert not folder.exists()
