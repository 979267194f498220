"""Shared fixtures: the shared data, tools that misbehave, and a look at this process's children."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agentr1_tools import BaseTool, ToolBox
from agentr1_tools.worker import processes
from hypothesis import HealthCheck, settings

# A busy machine is not a fault of the code under test.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


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
    """A tool out of a function `params -> result`; keywords set the attributes of BaseTool."""

    def make(execute: Callable[[dict[str, Any]], Any], **settings: Any) -> BaseTool:
        attributes = {
            "name": "probe",
            "description": "A tool under test.",
            "parameters": {"type": "object", "properties": {"x": {}}},
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
    deadline = time.monotonic() + 3
    while left := set(processes.descendants(os.getpid())) - before:
        if time.monotonic() > deadline:
            pytest.fail(f"processes left behind: {left}")
        time.sleep(0.02)
