import re
import sys
from importlib.metadata import requires

import gymnasium
import pytest
from agentr1_envs.errors import DependencyMissingError, EnvsError
from agentr1_envs.extras import EXTRAS, require
from agentr1_envs.serve_command import serve


def test_a_missing_extra_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in EXTRAS["serve"]:
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DependencyMissingError) as caught:
        serve("agentr1/GSM8K-v0")
    assert str(caught.value) == (
        "serving an environment needs fastapi and uvicorn and websockets; "
        "install it with: pip install 'agentr1-envs[serve]'"
    )
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, EnvsError)


def test_a_client_without_its_extra_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets", None)
    with pytest.raises(DependencyMissingError, match=r"needs websockets; .*pip install 'agentr1-envs\[remote\]'"):
        gymnasium.make("agentr1/Remote-v0", url="ws://127.0.0.1:1", env_id="agentr1/GSM8K-v0")


def test_what_is_here_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "probe", ("json", "sys"))
    require("probe", "nothing")


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_pyproject_says_the_same(extra: str) -> None:
    declared = {
        re.split(r"[^\w-]", requirement)[0]
        for requirement in requires("agentr1-envs") or []
        if f"extra == '{extra}'" in requirement
    }
    assert declared == set(EXTRAS[extra])
