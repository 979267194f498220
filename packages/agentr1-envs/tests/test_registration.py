import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import gymnasium
import pytest
from agentr1_envs import ENTRY_POINTS, register_envs


def test_make_loads_the_module_in_a_process_that_never_imported_it() -> None:
    script = (
        "import gymnasium, sys; assert 'agentr1_envs' not in sys.modules; "
        "env = gymnasium.make('agentr1_envs:agentr1/HotpotQA-v0'); print(env.reset(seed=0)[1]['task_id'])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("world-train-")


def test_importing_needs_no_heavy_package() -> None:
    script = (
        "import sys, agentr1_envs; "
        "print([name for name in ('torch', 'transformers', 'pyarrow', 'huggingface_hub') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_docstrings_have_gymnasiums_headings() -> None:
    headings = (
        "Description",
        "Action Space",
        "Observation Space",
        "Rewards",
        "Starting State",
        "Episode End",
        "Info",
        "Arguments",
        "Example",
        "References",
        "Version History",
    )
    for entry_point in ENTRY_POINTS.values():
        module, name = entry_point.split(":")
        documented: Callable[..., Any] = getattr(import_module(module), name)
        found = [line.strip()[3:] for line in documented.__doc__.splitlines() if line.strip().startswith("## ")]
        assert found == list(headings), entry_point


def test_registering_twice_changes_nothing(recwarn: pytest.WarningsRecorder) -> None:
    before = {env_id: gymnasium.spec(env_id) for env_id in ENTRY_POINTS}
    register_envs()
    assert {env_id: gymnasium.spec(env_id) for env_id in ENTRY_POINTS} == before
    assert not recwarn


def test_a_spec_makes_the_same_environment_again() -> None:
    env = gymnasium.make("agentr1/HotpotQA-v0", mode="react", max_steps=3)
    assert env.spec is not None
    twin = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert twin.reset(seed=4) == env.reset(seed=4)
    assert twin.unwrapped.max_steps == 3
