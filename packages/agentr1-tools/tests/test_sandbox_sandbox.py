"""Which sandbox is taken, and what is said where there is none."""

import os
import pickle
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from agentr1_tools.errors import SandboxUnavailableError
from agentr1_tools.sandbox import sandbox as module
from agentr1_tools.sandbox.limits import Limits
from agentr1_tools.sandbox.sandbox import find_sandbox
from agentr1_tools.sandbox.settings import SandboxSettings
from agentr1_tools.sandbox.unsafe import UnsafeSandboxWarning


@pytest.fixture
def commands(monkeypatch):
    """A PATH that holds only what a test puts there, and what drops root; anybody may run it."""

    def put(name, text):
        path = Path(folder) / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        if setpriv := module._setpriv():
            put("setpriv", f'exec {setpriv} "$@"')
        monkeypatch.setenv("PATH", folder)
        yield put


def test_bubblewrap_is_taken_without_being_asked_for(sandbox):
    assert sandbox.kind == "bubblewrap"
    assert find_sandbox(SandboxSettings(sandbox="bubblewrap")).kind == "bubblewrap"
    assert (sandbox.launcher.drop is not None) == (os.geteuid() == 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_sandbox(SandboxSettings(allow_unsafe_subprocess=True)).kind == "bubblewrap"


def test_a_sandbox_can_be_sent_to_a_worker(sandbox):
    assert pickle.loads(pickle.dumps(sandbox)) == sandbox


@pytest.mark.parametrize("name", [None, "bubblewrap"])
def test_without_a_sandbox_one_line_says_how_to_get_one(commands, name):
    with pytest.raises(SandboxUnavailableError, match=r"bwrap.*not installed.*`apt install bubblewrap`") as raised:
        find_sandbox(SandboxSettings(sandbox=name))
    assert "\n" not in str(raised.value)


def test_docker_is_not_taken_without_being_asked_for(commands):
    commands("docker", "exit 0")
    with pytest.raises(SandboxUnavailableError, match="apt install bubblewrap"):
        find_sandbox(SandboxSettings())


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_runtime_that_was_asked_for_must_be_there_and_work(commands, kind):
    with pytest.raises(SandboxUnavailableError, match=f"there is no command {kind}"):
        find_sandbox(SandboxSettings(sandbox=kind))
    commands(kind, "echo 'no daemon answers' >&2; exit 125")
    with pytest.raises(SandboxUnavailableError, match=f"no daemon answers .*{kind} pull python:3.11-slim"):
        find_sandbox(SandboxSettings(sandbox=kind))


def test_a_bubblewrap_that_is_too_old_is_refused(commands):
    commands("bwrap", "echo bubblewrap 0.6.1")
    with pytest.raises(SandboxUnavailableError, match=r"bubblewrap 0\.6 is too old, 0\.8 is"):
        find_sandbox(SandboxSettings())


def test_a_bubblewrap_that_may_not_is_refused_with_what_it_said(commands):
    commands("bwrap", '[ "$1" = --version ] && echo bubblewrap 0.9.0 && exit; echo "bwrap: No permissions" >&2; exit 1')
    with pytest.raises(SandboxUnavailableError, match=r"bwrap: No permissions \(user namespaces may be") as raised:
        find_sandbox(SandboxSettings())
    assert "\n" not in str(raised.value)


def test_the_unsafe_way_has_to_be_asked_for_and_warns(commands):
    with pytest.warns(UnsafeSandboxWarning, match="not installed.*no security boundary"):
        plain = find_sandbox(SandboxSettings(allow_unsafe_subprocess=True))
    assert plain.kind == "subprocess"
    outcome = plain.run("import os, resource\nprint(os.getuid(), resource.getrlimit(resource.RLIMIT_FSIZE)[1])", 30.0)
    assert outcome.stdout == f"{os.getuid() or 65534} {Limits().file_bytes}\n"
    assert plain.run("while True: pass", 0.5).timed_out
    assert "MemoryError" in plain.run("bytearray(10 * 2**30)", 30.0).stderr


def test_root_without_setpriv_is_refused(commands, monkeypatch):
    commands("bwrap", "echo bubblewrap 0.9.0")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    Path(os.environ["PATH"], "setpriv").unlink(missing_ok=True)
    with pytest.raises(SandboxUnavailableError, match="apt install util-linux"):
        find_sandbox(SandboxSettings())


def test_a_control_group_that_cannot_be_joined_is_done_without(sandbox, tmp_path):
    assert module._tried(replace(sandbox, groups=(tmp_path / "absent",)), "").groups == ()
