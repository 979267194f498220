"""Shared fixtures: the shared data, tools that misbehave, a look at this process's children, servers."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from agentr1_tools import BaseTool, ToolBox
from agentr1_tools.errors import SandboxUnavailableError
from agentr1_tools.sandbox.interpreter import default_path
from agentr1_tools.sandbox.limits import Limits
from agentr1_tools.sandbox.sandbox import Sandbox, find_sandbox
from agentr1_tools.sandbox.settings import SandboxSettings
from agentr1_tools.sandbox.unsafe import UnsafeSubprocess
from agentr1_tools.worker import processes
from hypothesis import HealthCheck, settings

# A busy machine is not a fault of the code under test.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_interrupts() -> None:
    """A shell that starts the tests in the background makes them deaf to SIGINT, which some of them send."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def hotpotqa_corpus() -> Path:
    """The 18,898-passage corpus."""
    shared = Path(os.environ.get("AGENTR1_SHARED", Path(__file__).parents[4] / "shared"))
    corpus = shared / "data" / "hotpotqa" / "corpus.jsonl"
    if not corpus.is_file():
        reason = f"no corpus at {corpus}; set AGENTR1_SHARED to the folder that holds data/hotpotqa"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return corpus


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data; without it the test is skipped, and fails in CI."""
    place = Path(os.environ.get("AGENTR1_SHARED", Path(__file__).parents[4] / "shared"))
    if not place.is_dir():
        reason = f"no shared data at {place}; set AGENTR1_SHARED"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    return place


@pytest.fixture
def make_tool() -> Callable[..., BaseTool]:
    """A tool out of a function `params -> result`, which a busy machine gives time; keywords set its attributes."""

    def make(execute: Callable[[dict[str, Any]], Any], **settings: Any) -> BaseTool:
        attributes = {
            "name": "probe",
            "description": "A tool under test.",
            "parameters": {"type": "object", "properties": {"x": {}}},
            "timeout": 10.0,
            "execute": lambda self, params: execute(params),
            **settings,
        }
        return type("Probe", (BaseTool,), attributes)()

    return make


@pytest.fixture
def open_box() -> Iterator[Callable[..., ToolBox]]:
    """A box that is open, and closed after the test."""
    boxes: list[ToolBox] = []

    def make(tools: list[Any], **settings: Any) -> ToolBox:
        box = ToolBox(tools, **settings)
        boxes.append(box)
        box.open()
        return box

    yield make
    for box in boxes:
        box.close()


@pytest.fixture
def no_process_left() -> Iterator[None]:
    """Fails when the test leaves a child process behind, alive or dead."""
    before = set(processes.descendants(os.getpid()))
    yield
    deadline = time.monotonic() + 30
    while left := set(processes.descendants(os.getpid())) - before:
        if time.monotonic() > deadline:
            pytest.fail(f"processes left behind: {left}")
        time.sleep(0.02)


@pytest.fixture
def retriever() -> Iterator[Any]:
    """A real HTTP retriever on loopback; `answer` decides what it says, `seen` holds what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        server: Any

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.seen.append((self.path, body))
            status, answer = self.server.answer(body)
            payload = json.dumps(answer).encode() if not isinstance(answer, bytes) else answer
            self.send_response(status)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            try:
                self.wfile.write(payload)
            except (BrokenPipeError, ConnectionResetError):
                return  # the client had given up

        def log_message(self, *args: object) -> None:
            """Stay silent."""

    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.seen = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


PLUGIN = """
import os, time
from agentr1_tools import ToolError, tool

@tool(timeout=60, cacheable=False)
def nap(seconds: float) -> str:
    '''Sleep.'''
    time.sleep(seconds)
    return f"slept {seconds:g} s"

@tool(timeout=0.5)
def hang() -> str:
    '''Sleep too long.'''
    time.sleep(60)
    return ""

@tool(cacheable=False, min_interval=0.01)
def odd(text: str) -> dict:
    '''Give the text back, in a list, with characters that are none.'''
    if text == "refuse":
        raise ToolError("ODD_TEXT", "not that text")
    return {"text": [text, "\\ud800", "\\u00fc"]}
"""


@dataclass(frozen=True)
class Server:
    """A server that runs as a process of its own, and what it said first."""

    process: "subprocess.Popen[str]"
    url: str

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def wait_until_at_work(self) -> None:
        """Until a request has arrived."""
        deadline = time.monotonic() + 30
        while not httpx.get(f"{self.url}/health", timeout=30, trust_env=False).json()["running"]:
            assert time.monotonic() < deadline, "no request came"
            time.sleep(0.02)


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Runs `agentr1-tools ARGUMENTS`, with the tools of PLUGIN installed, and waits until it names its address."""
    pytest.importorskip("uvicorn", reason="the extra serve is not installed")
    plugin = tmp_path / "plugin"
    info = plugin / "probe_tools-1.0.dist-info"
    info.mkdir(parents=True)
    (plugin / "probe_plugin.py").write_text(PLUGIN, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probe-tools\nVersion: 1.0\n", encoding="utf-8")
    entries = "".join(f"{name} = probe_plugin:{name}\n" for name in ("nap", "hang", "odd"))
    (info / "entry_points.txt").write_text(f"[agentr1.tools]\n{entries}", encoding="utf-8")
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> Server:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("agentr1-tools"), *arguments],
            env={**os.environ, "PYTHONPATH": str(plugin)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"http://\S+", said)
        if found is None:
            process.kill()
            pytest.fail(f"the server said {said!r} and {process.communicate()[1]!r}")
        return Server(process, found.group())

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """The sandbox of this machine. Without one the tests that need it skip, and say how to get one; in CI they fail."""
    try:
        return find_sandbox(SandboxSettings())
    except SandboxUnavailableError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def no_sandbox() -> Sandbox:
    """A plain subprocess: what an attack does there shows that the attack is a real one."""
    drop = shutil.which("setpriv") if os.geteuid() == 0 else None
    return Sandbox(UnsafeSubprocess(default_path(), drop), Limits())
