"""An environment that is elsewhere, in a recipe: the trainer's pool plays it as it plays one that is here."""

import asyncio
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agentr1_train.config import recipe_from_dict
from agentr1_train.env_pool import EnvPool

RECIPE = """
run_dir = "run"
[env]
id = "agentr1_envs:agentr1/Remote-v0"
kwargs = { url = "URL", env_id = "agentr1/GSM8K-v0" }
[model]
path = "model"
"""


@pytest.fixture
def url() -> Iterator[str]:
    program = Path(sys.executable).with_name("agentr1-envs")
    arguments = [program, "serve", "agentr1/GSM8K-v0", "--port", "0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().partition(" at ")[2].split()[0]
        process.kill()


async def episode(pool: EnvPool, seed: int) -> tuple[Any, ...]:
    """One episode of the scripted expert, and what the flow reads of the environment."""
    env = await pool.acquire()
    seen = [await env.reset(seed)]
    for action in await env.demonstration() or []:
        seen.append(await env.step(action))
    attributes = env.attributes
    pool.release(env)
    return seen, attributes, pool.task_ids, pool.training_only


async def test_a_recipe_names_a_served_environment(url: str) -> None:
    config = recipe_from_dict(tomllib.loads(RECIPE.replace("URL", url)), "recipe.toml").env
    here = recipe_from_dict(
        {"env": {"id": "agentr1_envs:agentr1/GSM8K-v0"}, "run_dir": "r", "model": {"path": "m"}}, "r"
    )
    with EnvPool(config) as remote, EnvPool(here.env) as local:
        there = await asyncio.gather(*(episode(remote, seed) for seed in range(4)))
        assert there == [await episode(local, seed) for seed in range(4)]
        assert all(seen[-1][4]["success"] for seen, *_ in there)
