import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from agentr1_tools.errors import SandboxUnavailableError
from agentr1_tools.sandbox import interpreter


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_the_systems_python_comes_first(monkeypatch):
    monkeypatch.setattr(interpreter, "_SYSTEM_PYTHON", sys.executable)
    assert interpreter.default_path() == sys.executable
    monkeypatch.setattr(interpreter, "_SYSTEM_PYTHON", "/nowhere/python3")
    assert os.access(interpreter.default_path(), os.X_OK)


def test_what_is_bound_is_the_program_under_each_of_its_names_and_its_libraries():
    found = interpreter.find(interpreter.default_path())
    assert found.path in found.files
    assert all(os.path.realpath(name) == found.program for name in found.files)
    stdlib = subprocess.run([found.path, "-c", "import os; print(os.__file__)"], capture_output=True, text=True).stdout
    assert any(stdlib.startswith(f"{folder}/") for folder in found.folders)
    too_much = {"/", "/usr", "/etc", "/home", "/root", "/tmp", "/usr/bin", "/usr/local", str(Path.home()), os.getcwd()}
    assert not too_much & set(found.folders)
    assert all(os.path.islink(place) and os.readlink(place) == target for target, place in found.links)


def test_a_virtual_environment_brings_its_folder_and_its_base(tmp_path):
    base = interpreter.find(interpreter.default_path())
    subprocess.run([base.path, "-m", "venv", "--without-pip", "--symlinks", str(tmp_path / "env")], check=True)
    found = interpreter.find(str(tmp_path / "env/bin/python3"))
    assert str(tmp_path / "env") in found.folders
    assert set(base.folders) <= set(found.folders)
    assert found.program == base.program
    assert base.program in found.files


def test_code_sees_the_packages_of_a_virtual_environment(sandbox):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        base = interpreter.default_path()
        subprocess.run([base, "-m", "venv", "--without-pip", "--symlinks", f"{folder}/env"], check=True)
        (packages,) = Path(folder).glob("env/lib/*/site-packages")
        (packages / "dragon.py").write_text("color = 'green'", encoding="utf-8")
        (Path(folder) / "beside").write_text("", encoding="utf-8")
        inside = interpreter.find(f"{folder}/env/bin/python3")
        other = replace(sandbox, launcher=replace(sandbox.launcher, interpreter=inside))
        outcome = other.run(f"import dragon, os\nprint(dragon.color, os.listdir({folder!r}))", 30.0)
        assert outcome.stdout == "green ['env']\n"


def test_a_python_that_is_too_old_or_does_not_run_is_named(tmp_path):
    old = script(tmp_path / "old", """echo '{"version": [3, 7], "prefix": "/", "base": "/"}'""")
    with pytest.raises(SandboxUnavailableError, match=r"old is Python 3\.7; 3\.8 or later"):
        interpreter.find(old)
    for path in (script(tmp_path / "broken", "exit 3"), script(tmp_path / "mute", "true"), str(tmp_path / "absent")):
        with pytest.raises(SandboxUnavailableError, match=f"{path} does not run .*; give interpreter="):
            interpreter.find(path)
