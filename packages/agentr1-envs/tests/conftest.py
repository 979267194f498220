"""What the tests of agentr1-envs share: where the real data lies, and episodes played by the scripted expert."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import agentr1_envs
import gymnasium
import pytest

EVERY_ENV = [
    ("agentr1/ALFWorld-v0", {}),
    ("agentr1/ALFWorld-v0", {"observation": "messages", "history": 3}),
    ("agentr1/ALFWorldTools-v0", {}),
    ("agentr1/GSM8K-v0", {}),
    ("agentr1/GSM8K-v0", {"mode": "single"}),
    ("agentr1/GSM8K-v0", {"format": "call", "observation": "messages", "history": 2}),
    ("agentr1/GSM8KOracle-v0", {}),
    ("agentr1/HotpotQA-v0", {}),
    ("agentr1/HotpotQA-v0", {"mode": "react"}),
    ("agentr1/HotpotQA-v0", {"mode": "context", "observation": "messages"}),
    ("agentr1/HotpotQA-v0", {"mode": "context", "facts": True}),
    ("agentr1/PaperSearch-v0", {}),
    ("agentr1/PaperSearch-v0", {"split": "train", "observation": "messages", "reward_scorer": "relevance"}),
    ("agentr1/ToolEnv-v0", {"tool_timeout": 10.0}),
    ("agentr1/WebShop-v0", {}),
    ("agentr1/WebShop-v0", {"observation_mode": "text_rich", "observation": "messages", "history": 1}),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `any_env` runs once for each id and mode."""
    if "any_env" in metafunc.fixturenames:
        names = [f"{env_id.split('/')[1]}-{'-'.join(map(str, kwargs.values()))}" for env_id, kwargs in EVERY_ENV]
        metafunc.parametrize("any_env", EVERY_ENV, ids=names)


@pytest.fixture(autouse=True)
def _no_data_of_this_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests play the bundled samples, whatever the user's folders hold."""
    for name in ("AGENTR1_DATA", "ALFWORLD_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "no_user_data"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data; without it the test is skipped, and fails in CI."""
    root = Path(__file__).parents[3]
    place = Path(os.environ.get("AGENTR1_SHARED", root.parent / "shared")) / "data"
    if not place.is_dir():
        reason = f"real data not found at {place}; set AGENTR1_SHARED to the folder that holds data/"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    return place


@pytest.fixture(scope="session")
def golden(shared_data: Path) -> Callable[[str], Any]:
    """Reads a golden file of the published WebShop by its name."""
    return lambda name: json.loads((shared_data.parent / "golden" / f"webshop_{name}.json").read_text("utf-8"))


@pytest.fixture(scope="session")
def small_set(shared_data: Path) -> Path:
    """The folder of WebShop's 1,000 products."""
    return shared_data / "webshop"


@pytest.fixture
def make() -> Iterator[Callable[..., agentr1_envs.AgentEnv]]:
    """Makes environments, and closes them after the test."""
    made: list[gymnasium.Env[Any, Any]] = []

    def _make(env_id: str, **kwargs: Any) -> agentr1_envs.AgentEnv:
        env = gymnasium.make(env_id, **kwargs)
        made.append(env)
        assert isinstance(env.unwrapped, agentr1_envs.AgentEnv)
        return env.unwrapped

    yield _make
    for env in made:
        env.close()


@pytest.fixture
def expert() -> Callable[..., list[Any]]:
    """Plays one task as its scripted expert; returns what each step returned."""

    def _play(env: Any, task_id: str) -> list[Any]:
        env.reset(options={"task_id": task_id})
        return [env.step(action) for action in env.demonstration()]

    return _play
