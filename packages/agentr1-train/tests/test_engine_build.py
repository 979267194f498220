"""The CPU kernel: built once, by one process, whatever was killed before."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from agentr1_train.engine import build

COMMAND = [sys.executable, "-m", "agentr1_train.engine.build"]


def environment(cache: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != build.EXTENSIONS_VARIABLE}
    return kept | {"AGENTR1_CACHE": str(cache)}


def test_extensions_folder_is_ours_unless_the_user_chose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTR1_CACHE", str(tmp_path))
    monkeypatch.delenv(build.EXTENSIONS_VARIABLE, raising=False)
    ours = build.use_extensions_dir()
    assert ours.parent == tmp_path / "torch_extensions"
    assert "torch" in ours.name
    assert os.environ[build.EXTENSIONS_VARIABLE] == str(ours)
    monkeypatch.setenv(build.EXTENSIONS_VARIABLE, "/elsewhere")
    assert build.use_extensions_dir() == Path("/elsewhere")
    monkeypatch.delenv("AGENTR1_CACHE")
    assert build.cache_dir() == Path.home() / ".cache" / "agentr1"


def test_a_lock_whose_owner_is_dead_is_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / build.KERNEL / "lock"
    lock.parent.mkdir()
    assert not build.remove_stale_lock(tmp_path)
    lock.touch()
    assert build.remove_stale_lock(tmp_path)
    assert not lock.exists()
    assert "did not finish" in capsys.readouterr().err


def test_a_lock_whose_owner_lives_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / build.KERNEL / "lock"
    lock.parent.mkdir()
    held = "import os, sys; os.open(sys.argv[1], os.O_CREAT | os.O_EXCL); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", held, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        assert not build.remove_stale_lock(tmp_path)
        assert lock.exists()
        assert f"process {owner.pid}" in capsys.readouterr().err
        owner.kill()
    assert build.remove_stale_lock(tmp_path)


def test_nothing_heavy_is_imported_when_it_is_built(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from agentr1_train.engine import build\n"
        "folder = build.use_extensions_dir()\n"
        "(folder / build.KERNEL).mkdir(parents=True)\n"
        "(folder / build.KERNEL / 'kernel.so').touch()\n"
        "assert not build.is_built(folder)\n"
        "(folder / f'{build.KERNEL}.built').touch()\n"
        "assert build.main() == 0\n"
        "assert not {'torch', 'deepspeed'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "kernel is compiled" in done.stderr


def test_ranks_use_the_built_kernel(two_ranks: list[Any]) -> None:
    """After two ranks ran, the kernel is there, built, and no lock is left (others hold it while they load it)."""
    folder = build.use_extensions_dir()
    assert build.is_built(folder)
    deadline = time.monotonic() + 60
    while (folder / build.KERNEL / "lock").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not (folder / build.KERNEL / "lock").exists()


def test_ranks_leave_no_memory_taken(two_ranks: list[Any]) -> None:
    """Every rank works with the buffers of both, and not one has a name that would outlive a killed rank."""
    for rank in two_ranks:
        assert len(rank["buffers"]["mapped"]) == 2
        assert rank["buffers"]["named"] == []


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_two_builders_after_a_killed_one(tmp_path: Path) -> None:
    """Kill a real compile, then start two at once: one compiles, the other waits, and both end well."""
    first = subprocess.Popen(COMMAND, env=environment(tmp_path), stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob(f"torch_extensions/*/{build.KERNEL}/lock")):
        assert time.monotonic() < deadline
        assert first.poll() is None
        time.sleep(0.2)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert list(tmp_path.glob(f"torch_extensions/*/{build.KERNEL}/lock"))

    both = [subprocess.Popen(COMMAND, env=environment(tmp_path), stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [builder.communicate(timeout=1100)[1] for builder in both]
    assert [builder.returncode for builder in both] == [0, 0], said
    assert sum("kernel compiled in" in text for text in said) == 1, said
    assert sum("did not finish" in text for text in said) == 1, said
    started = time.monotonic()
    subprocess.run(COMMAND, env=environment(tmp_path), check=True, capture_output=True, timeout=30)
    assert time.monotonic() - started < 10
