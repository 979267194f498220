"""The pages of the environments say what is so: their arguments are accepted, their keys of `info` occur in episodes.

That the pages are current, and that their examples run, is held by `test_docs.py`.
"""

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import agentr1_envs
import gymnasium
import pytest
from agentr1_envs.errors import SettingError

ROOT = Path(__file__).resolve().parent.parent
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "agentr1/GSM8K-v0": [{"mode": "calculator"}, {"mode": "single"}],
    "agentr1/HotpotQA-v0": [
        {"mode": "tools"},
        {"mode": "react"},
        {"mode": "context"},
        {"mode": "context", "facts": True},
    ],
}
"""Ids whose arguments and `info` depend on a mode; the others are made with no argument."""
ELSEWHERE = frozenset({"agentr1/Remote-v0"})
"""Ids that cannot be made alone; tests of their own hold what they accept and show."""
ALONE = [env_id for env_id in agentr1_envs.ENTRY_POINTS if env_id not in ELSEWHERE]


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    """scripts/env_pages.py, which is no part of an installed package."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import env_pages
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return env_pages


@pytest.fixture(autouse=True)
def _bundled_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AGENTR1_DATA", "ALFWORLD_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "no_user_data"))


def test_only_what_is_played_elsewhere_needs_an_argument(pages: ModuleType) -> None:
    assert {env_id for env_id, maker in pages.registered().items() if pages.needed(maker)} <= ELSEWHERE


@pytest.mark.parametrize("env_id", ALONE)
def test_info_keys_are_those_of_an_episode(env_id: str, pages: ModuleType) -> None:
    listed = pages.info_keys(pages.registered()[env_id])
    seen: dict[str, str] = {}
    for kwargs in VARIANTS.get(env_id, [{}]):
        for info in _episode(env_id, kwargs):
            seen |= {key: type(value).__name__ for key, value in info.items()}
    assert seen == {key: kind.partition(" ")[0] for key, kind in listed.items()}


def _episode(env_id: str, kwargs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every info of an episode that the scripted expert plays to its end."""
    env = gymnasium.make(env_id, **kwargs)
    yield env.reset(seed=0)[1]
    over = False
    for response in env.get_wrapper_attr("demonstration")():
        _, _, terminated, truncated, info = env.step(response)
        over = terminated or truncated
        yield info
    assert over
    env.close()


@pytest.mark.parametrize("env_id", ALONE)
def test_arguments_are_those_that_are_accepted(env_id: str, pages: ModuleType) -> None:
    """Among the names that any environment takes, this one accepts those of its page and refuses the others."""
    makers = pages.registered()
    own = pages.arguments(makers[env_id])
    everywhere = {name for maker in makers.values() for name in pages.arguments(maker)}
    accepted = {name for name in everywhere if _accepts(env_id, name, own.get(name))}
    assert accepted == set(own)


def _accepts(env_id: str, name: str, parameter: inspect.Parameter | None) -> bool:
    value = None if parameter is None else parameter.default
    for kwargs in VARIANTS.get(env_id, [{}]):
        try:
            gymnasium.make(env_id, **{**kwargs, name: value}).close()
        except (SettingError, TypeError):
            continue
        return True
    return False


def test_a_docstring_that_lacks_something_is_told(pages: ModuleType) -> None:
    def remote(url: str = "", *, seconds: float = 1.0, **settings: Any) -> None:
        """Far away.

        ## Description
        Text.

        ## Arguments
        * `url`: where.
        """

    told = "\n".join(pages.problems("agentr1/Far-v0", remote))
    assert "needed: Description, Action Space, Observation Space" in told
    assert "Info lists no key" in told
    assert "Example needs a python block" in told
    assert "does not name `seconds`" in told
    assert "**settings hides its arguments" in told
    assert "`url`" not in told
    assert not list(pages.problems("agentr1/WebShop-v0", pages.registered()["agentr1/WebShop-v0"]))


def test_an_id_without_the_headings_fails_the_check() -> None:
    script = (
        "import sys; sys.path.insert(0, 'scripts'); import agentr1_envs, gen_docs; "
        "agentr1_envs.ENTRY_POINTS['agentr1/New-v0'] = 'agentr1_envs.registration:register_envs'; "
        "sys.argv = ['gen_docs.py', '--check']; gen_docs.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "agentr1/New-v0: its docstring has the headings none; needed: Description" in done.stderr
