"""What the tests of agentr1-envs share: where the real data lies, episodes played by the scripted expert, servers."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agentr1_envs
import gymnasium
import pytest
from agentr1_envs.spaces import Text
from agentr1_envs.vector import ThreadVectorEnv
from hypothesis import HealthCheck, settings

sys.path.append(str(Path(__file__).parent))  # tests and the servers they start import `served_toys`

# A busy machine is not a fault of the code under test.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

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


@dataclass
class Server:
    """A server in a process of its own."""

    process: "subprocess.Popen[str]"
    url: str

    @property
    def port(self) -> str:
        """The port it listens on."""
        return self.url.rpartition(":")[2]

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start_server() -> Iterator[Callable[..., Server]]:
    """Starts `agentr1-envs serve` with the arguments given, by default at a free port; kills what runs at the end."""
    started: list[Server] = []

    def _start(*arguments: str) -> Server:
        command = [sys.executable, "-c", "from agentr1_envs.cli import main; main()", "serve", *arguments]
        port = () if "--port" in arguments else ("--port", "0")
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(
            [*command, *port], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        assert " at ws://" in first, process.communicate()[1]
        started.append(Server(process, first.partition(" at ")[2].split()[0]))
        return started[-1]

    yield _start
    for server in started:
        if server.process.poll() is None:
            server.kill()
        else:
            server.process.communicate()


@pytest.fixture
def serve_here() -> Iterator[Callable[..., str]]:
    """Serves environments made by a function, from a thread of this process; returns the address."""
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    import uvicorn
    from agentr1_envs.serving.app import Served, environment_app
    from agentr1_envs.serving.limits import ServingLimits
    from agentr1_envs.serving.run import server_config

    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def _serve(
        make_env: Callable[[str | None], Any], env_id: str = "toys/Stranger-v0", token: str = "", **limits: Any
    ) -> str:
        allowed = ServingLimits(**limits)
        app = environment_app(Served(env_id, "settings", make_env, token), allowed)
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        server = uvicorn.Server(server_config(app, allowed.max_message_bytes))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        running.append((server, thread))
        return f"ws://127.0.0.1:{listener.getsockname()[1]}"

    yield _serve
    for server, thread in running:
        server.should_exit = True
        thread.join()


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Waits until something is so, for at most half a minute."""

    def _until(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end, "it never became so"
            time.sleep(0.01)

    return _until


@pytest.fixture
def until_async() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """As `until`, letting the event loop run."""

    async def _until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.01)

    return _until


# Vectors


class Obeying(gymnasium.Env[str, str]):
    """Does what the action says; `gate` holds what hangs."""

    observation_space = Text()
    action_space = Text()

    def __init__(self, gate: threading.Event, made: list["Obeying"]) -> None:
        self.gate, self.closed, self.order, self.mood = gate, False, "", "calm"
        self.options: dict[str, Any] | None = None
        made.append(self)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.options, self.steps = options, 0
        self.obey((options or {}).get("reset", self.order))
        self.draw = int(self.np_random.integers(10**6))
        return f"opening {self.draw}", {"task_id": str(self.draw), "reward/task": 0.0, "success": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.obey(action)
        over = action == "end"
        info = {"task_id": str(self.draw), "reward/task": 1.0, "success": over}
        return f"{action} {self.steps}", 1.0, over, False, info

    def obey(self, order: str) -> None:
        if order == "hang":
            self.gate.wait()
        elif order == "sleep":
            time.sleep(0.5)
        elif order == "raise":
            raise OSError("no corpus")
        elif order == "exit":
            raise SystemExit("leaving")

    def close(self) -> None:
        self.closed = True

    def whistle(self) -> None:
        self.obey(self.mood)

    def render(self) -> str:
        return self.mood


@pytest.fixture
def made() -> list[Obeying]:
    """Every environment that was made, in order."""
    return []


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds what hangs, until the test is over."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def obeying(made: list[Obeying], gate: threading.Event) -> Callable[[], Obeying]:
    """Makes an obeying environment."""
    return lambda: Obeying(gate, made)


@pytest.fixture
def vector(obeying: Callable[[], Obeying], gate: threading.Event) -> Iterator[Callable[..., ThreadVectorEnv]]:
    """Makes vectors of obeying environments, and closes them after the test."""
    vectors: list[ThreadVectorEnv] = []

    def _make(num_envs: int = 2, **settings: Any) -> ThreadVectorEnv:
        vectors.append(ThreadVectorEnv([obeying] * num_envs, **settings))
        return vectors[-1]

    yield _make
    gate.set()
    for each in vectors:
        each.close()


@pytest.fixture
def alone() -> Callable[[int], str]:
    """How an obeying environment opens with a seed."""
    return lambda seed: Obeying(threading.Event(), []).reset(seed=seed)[0]
