"""An environment whose tools are elsewhere: named in a recipe, run by a tool server."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
from agentr1_train.config import recipe_from_dict

RECIPE = """
run_dir = "run"
[env]
id = "agentr1_envs:agentr1/ToolEnv-v0"
[[env.kwargs.tools]]
name = "remote"
url = "URL"
tool = "calculator"
[[env.kwargs.tasks]]
question = "What is 6 times 7?"
answer = "42"
[model]
path = "model"
"""
CALL = '<tool_call>{"name": "calculator", "arguments": {"expression": "6 * 7"}}</tool_call>'


@pytest.fixture
def server() -> Iterator["tuple[subprocess.Popen[str], str]"]:
    program = Path(sys.executable).with_name("agentr1-tools")
    arguments = [program, "serve", "--tools", "calculator", "--port", "0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().partition(" at ")[2].split()[0]
        process.kill()


def test_a_recipe_names_a_remote_tool(server: "tuple[subprocess.Popen[str], str]") -> None:
    process, url = server
    recipe = recipe_from_dict(tomllib.loads(RECIPE.replace("URL", url)), "recipe.toml")
    env = gymnasium.make(recipe.env.id, **recipe.env.kwargs)
    env.reset(seed=0)
    assert [schema["function"]["name"] for schema in env.unwrapped.tool_schemas] == ["calculator"]  # type: ignore[attr-defined]
    observation, _, terminated, _, _ = env.step(CALL)
    assert "42" in observation
    assert not terminated
    process.kill()
    process.wait()
    again = CALL.replace("6 * 7", "7 * 6")
    observation, _, terminated, _, info = env.step(again)
    assert (info["error_codes"], terminated) == (("NETWORK_ERROR",), False)
    assert "NETWORK_ERROR" in observation
    assert env.step("<answer>42</answer>")[4]["success"]
    env.close()
