"""scripts/setup.py, without pip, uv or a network: what counts as whole, what is fetched, what is made anew."""

import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
LOCK = """
version = 1
[[package]]
name = "one"
version = "1.0"
source = { registry = "wheelhouse" }
wheels = [{ path = "one-1.0-py3-none-any.whl" }]
[[package]]
name = "two"
version = "2.0+cpu"
source = { registry = "wheelhouse" }
wheels = [{ path = "two-2.0+cpu-py3-none-any.whl" }]
"""
ONE, TWO = "one-1.0-py3-none-any.whl", "two-2.0+cpu-py3-none-any.whl"


class FakePip:
    """Stands where pip would run: notes what it is asked for and writes the wheels it is told to give."""

    def __init__(self, gives: Sequence[str]) -> None:
        self.gives, self.asked = gives, []

    def __call__(self, arguments: Sequence[str]) -> bool:
        self.asked.append(list(arguments))
        folder = Path(arguments[arguments.index("--wheel-dir") + 1])
        for name in self.gives:
            write_wheel(folder / name)
        return True


def write_wheel(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("module.py", "value = 1\n" * 200)


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script as a module, its folders in a workspace of two packages."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    module = import_module("setup")
    (tmp_path / "uv.lock").write_text(LOCK)
    (tmp_path / ".bootstrap").mkdir()
    workspace = import_module("workspace")
    locked = workspace.locked_wheels(tmp_path)
    monkeypatch.setattr(workspace, "locked_wheels", lambda: locked)
    for name, folder in {"ROOT": "", "BOOTSTRAP": ".bootstrap", "WHEELHOUSE": "wheelhouse"}.items():
        monkeypatch.setattr(module, name, tmp_path / folder)
    yield module
    for name in ("setup", "workspace"):
        sys.modules.pop(name, None)


def wheels_in(setup: ModuleType) -> set[str]:
    return {path.name for path in setup.WHEELHOUSE.iterdir()}


def test_a_wheel_cut_short_is_not_whole(setup: ModuleType, tmp_path: Path) -> None:
    wheel = tmp_path / ONE
    write_wheel(wheel)
    assert setup.is_whole(wheel)
    wheel.write_bytes(wheel.read_bytes()[:-40])
    assert not setup.is_whole(wheel)
    assert not setup.is_whole(tmp_path / "absent.whl")


def test_only_what_is_missing_or_cut_short_is_fetched(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = FakePip([TWO])
    monkeypatch.setattr(setup, "try_pip", pip)
    setup.WHEELHOUSE.mkdir()
    write_wheel(setup.WHEELHOUSE / ONE)
    (setup.WHEELHOUSE / TWO).write_bytes(b"PK half a wheel")
    assert setup.fetch_locked() == []
    assert wheels_in(setup) == {ONE, TWO}
    assert setup.is_whole(setup.WHEELHOUSE / TWO)
    assert len(pip.asked) == 1
    assert pip.asked[0][-1] == "two==2.0"  # the label is left to pip
    assert "one==1.0" not in pip.asked[0]


def test_nothing_is_fetched_twice(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = FakePip([ONE, TWO])
    monkeypatch.setattr(setup, "try_pip", pip)
    setup.fetch_locked()
    setup.fetch_locked()
    assert len(pip.asked) == 1


def test_another_build_of_a_version_is_reported(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "try_pip", FakePip([ONE, "two-2.0-cp311-cp311-manylinux_2_28_x86_64.whl"]))
    assert setup.fetch_locked() == [TWO]


def test_an_interrupted_fetch_leaves_no_half_wheel(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: Sequence[str]) -> bool:
        folder = Path(arguments[arguments.index("--wheel-dir") + 1])
        (folder / ONE).write_bytes(b"PK half a wheel")
        raise KeyboardInterrupt

    monkeypatch.setattr(setup, "try_pip", interrupted)
    with pytest.raises(KeyboardInterrupt):
        setup.fetch_locked()
    assert wheels_in(setup) == set()
    monkeypatch.setattr(setup, "try_pip", FakePip([ONE, TWO]))
    assert setup.fetch_locked() == []
    assert list(setup.BOOTSTRAP.glob("incoming-*")) == []


def test_the_original_engine_is_compiled_once_and_only_when_asked(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = ["fast-downward-textworld==20.6.4", "jericho==3.3.1"]
    assert setup.uncompiled() == pins
    assert setup._original(None) == []
    built = ["fast_downward_textworld-20.6.4-py3-none-linux_x86_64.whl", "jericho-3.3.1-py3-none-linux_x86_64.whl"]
    pip = FakePip(built)
    monkeypatch.setattr(setup, "try_pip", pip)
    monkeypatch.setattr(setup.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(setup.workspace, "this_machine", lambda: {"python_full_version": "3.11.7"})
    setup.compile_original()
    setup.compile_original()
    assert len(pip.asked) == 1
    assert pip.asked[0][-3:] == ["--no-deps", *pins]
    assert (setup.uncompiled(), setup._original(None)) == ([], ["--group", "original"])
    assert setup._original("agentr1-envs") == [], "a package alone goes without"


@pytest.mark.parametrize(
    ("found", "python", "message"),
    [
        ({"make"}, "3.11.7", r"g\+\+ and make; not found here: g\+\+"),
        ({"g++", "make"}, "3.13.0", "needs Python 3.11 or 3.12, not 3.13.0"),
    ],
)
def test_a_machine_that_cannot_compile_is_told(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, found: set[str], python: str, message: str
) -> None:
    monkeypatch.setattr(setup, "try_pip", FakePip([]))
    monkeypatch.setattr(setup.shutil, "which", lambda name: name if name in found else None)
    monkeypatch.setattr(setup.workspace, "this_machine", lambda: {"python_full_version": python})
    with pytest.raises(SystemExit, match=message):
        setup.compile_original()


def test_an_environment_left_unfinished_is_made_anew(setup: ModuleType, tmp_path: Path) -> None:
    environment = tmp_path / ".venv"

    def build() -> None:
        with setup.marked(environment):
            environment.mkdir(exist_ok=True)
            (environment / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build()
    with setup.marked(environment):
        assert not environment.exists()
        environment.mkdir()
    with setup.marked(environment):  # finished this time, so it stays
        assert environment.exists()
    shutil.rmtree(environment)


def test_a_refusal_by_uv_leaves_the_environment_alone(setup: ModuleType, tmp_path: Path) -> None:
    environment = tmp_path / ".venv"
    environment.mkdir()
    with pytest.raises(SystemExit, match="uv says no"), setup.marked(environment):
        setup.fail("uv says no")
    with setup.marked(environment):
        assert environment.exists()


def test_two_set_ups_take_turns(setup: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    import fcntl

    with setup.one_at_a_time(), (setup.BOOTSTRAP / "lock").open("w") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert "waiting" not in capsys.readouterr().out
