"""What cannot run is refused, by whichever part notices, before anything is written; no field is without effect."""

import dataclasses
import re
import shutil
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agentr1_train
import pytest
import torch
from agentr1_train.config import Recipe, recipe_from_dict
from agentr1_train.errors import (
    AgentR1Error,
    ConfigError,
    DeviceError,
    EnvironmentLoadError,
    MissingFileError,
    UnknownNameError,
)
from agentr1_train.trainer import train

Make = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("sections", "error", "said"),
    [
        ({"env": {"id": "symbol_env:Symbal-v0"}}, EnvironmentLoadError, "Symbal"),
        ({"env": {"id": "no_such_module:Symbol-v0"}}, EnvironmentLoadError, "no_such_module"),
        ({"env": {"kwargs": {"file": "absent.txt"}}}, EnvironmentLoadError, "absent.txt"),
        ({"evaluation": {"episodes": 2}, "env": {"eval_kwargs": {"file": "absent.txt"}}}, EnvironmentLoadError, "abs"),
        ({"env": {"kwargs": {"stepz": 3}}}, EnvironmentLoadError, "stepz"),
        ({"model": {"path": "/no/such/model"}}, MissingFileError, "/no/such/model"),
        ({"model": {"chat_template": "absent.jinja"}}, MissingFileError, "absent.jinja"),
        ({"model": {"critic_path": "./absent"}, "algorithm": {"preset": "ppo"}}, MissingFileError, "critic_path"),
        ({"model": {"critic_path": "./absent"}}, ConfigError, "without effect"),
        ({"engine": {"device": "tpu"}}, DeviceError, "legal values are auto, cpu, cuda"),
        ({"engine": {"dtype": "bf16"}}, ConfigError, "zero_stage"),
        ({"sampler": {"name": "scriptd"}}, UnknownNameError, "Did you mean 'scripted'"),
        ({"sampler": {"name": "scripted", "script": "symbol_env:nothing"}}, ConfigError, "symbol_env:nothing"),
        ({"algorithm": {"preset": "grpoo"}}, UnknownNameError, "Did you mean 'grpo'"),
        ({"algorithm": {"estimator": "step_gea"}}, UnknownNameError, "Did you mean 'step_gae'"),
        ({"supervised": {"batches": 1, "demonstrations": "absent.parquet"}}, MissingFileError, "absent.parquet"),
        ({"supervised": {"batches": 1}}, ConfigError, r"has no demonstration\(\)"),
        ({"rollout": {"group_size": 1}}, ConfigError, "at least 2"),
        ({"rollout": {"temperature": 0.0}}, ConfigError, "rollout.temperature"),
        ({"rollout": {"async_level": -1}}, ConfigError, "rollout.async_level = -1: legal is 0 or above"),
        (
            {"rollout": {"async_level": 1}, "algorithm": {"mismatch": "none"}},
            ConfigError,
            "Legal is 'truncate' or 'mask', or rollout.async_level = 0",
        ),
        ({"rollout": {"branch_limit": 8}}, ConfigError, "branch_limit = 8 would be without effect"),
        ({"rollout": {"branch_surprise": 0.0}}, ConfigError, "branch_surprise = 0.0 would be without effect"),
        ({"rollout": {"branch_width": 8}}, ConfigError, "legal is rollout.branch_width"),
        ({"rollout": {"branch_width": 2, "max_steps": 1}}, ConfigError, "branch_width = 2 would be without effect"),
        ({"rollout": {"branch_width": 2, "branch_probability": 2.0}}, ConfigError, "legal is 0 to 1"),
        ({"algorithm": {"preset": "layered", "kl": "reward"}}, ConfigError, "reads reward streams"),
        ({"evaluation": {"samples": 2, "episodes": 2}}, ConfigError, "temperature 0"),
        ({"ray": {"address": "127.0.0.1:6379"}}, ConfigError, "ray.address = '127.0.0.1:6379' would be without effect"),
        ({"ray": {"actors": -1}}, ConfigError, "ray.actors = -1: legal is 0 or above"),
        ({"ray": {"actors": 1, "attempts": 0}}, ConfigError, "ray.attempts = 0: legal is 1 or above"),
        ({"ray": {"actors": 1, "address": "here"}}, ConfigError, "ray.address = 'here': write HOST:PORT"),
        ({"updates": 0}, ConfigError, "updates = 0"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_written(
    sections: dict[str, Any], error: type[AgentR1Error], said: str, symbol_recipe: Make
) -> None:
    table = symbol_recipe(**sections)
    with pytest.raises(error, match=said) as caught:
        train(recipe_from_dict(table))
    assert "\n" not in str(caught.value).strip()
    assert not Path(table["run_dir"]).exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_device_that_is_not_there_is_refused(symbol_recipe: Make) -> None:
    table = symbol_recipe(engine={"device": "cuda"})
    with pytest.raises(DeviceError, match=r"sees no CUDA device.*Set engine.device to 'cpu'"):
        train(recipe_from_dict(table))
    assert not Path(table["run_dir"]).exists()


def test_a_model_without_weights_is_refused_before_anything_is_written(
    symbol_recipe: Make, symbol_model_dir: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(symbol_model_dir, broken, ignore=shutil.ignore_patterns("*.safetensors"))
    table = symbol_recipe(model={"path": str(broken)})
    with pytest.raises(MissingFileError, match="broken"):
        train(recipe_from_dict(table))
    assert not Path(table["run_dir"]).exists()


def test_every_field_of_the_recipe_is_read_somewhere() -> None:
    """A field that only ``config.py`` knows would be accepted and without effect."""
    folder = Path(agentr1_train.__file__).parent
    text = "\n".join(path.read_text("utf-8") for path in folder.rglob("*.py") if path.name != "config.py")
    sections = [Recipe, *(kind for kind in typing.get_type_hints(Recipe).values() if dataclasses.is_dataclass(kind))]
    fields = {f"{kind.__name__}.{item.name}" for kind in sections for item in dataclasses.fields(kind)}
    assert len(fields) > 80
    named = {field for field in fields if re.search(rf"[.\"']{field.partition('.')[2]}\b", text)}
    assert fields - named == set()
