"""The pool: lends and takes back, replaces what is broken, and says what is wrong with an id."""

import asyncio
import subprocess
import sys
import textwrap
import time
from typing import Any

import gymnasium
import pytest
from agentr1_train.config import EnvConfig
from agentr1_train.env_pool import EnvAttributes, EnvPool
from agentr1_train.errors import ConfigError, EnvironmentLoadError


class TalkativeEnv(gymnasium.Env[str, str]):
    """Tells everything the pool may ask."""

    observation_space = gymnasium.spaces.Text(10)
    action_space = gymnasium.spaces.Text(10)
    tools_in_template = True
    stop = ("</answer>",)
    task_ids = ("a", "b")
    training_only = ("shake",)
    closed = 0
    made = 0

    def __init__(self, fail_tasks: bool = False) -> None:
        TalkativeEnv.made += 1
        self.system_prompt = "before"
        if fail_tasks:
            self.task_ids = property(lambda self: 1)  # not a sequence

    @property
    def tool_schemas(self) -> list[dict[str, Any]]:
        return [{"type": "function", "function": {"name": "look"}}]

    def demonstration(self) -> list[str]:
        return ["look", "take"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.system_prompt = f"task {(options or {}).get('task_id', seed)}"
        return "go", {}

    def close(self) -> None:
        TalkativeEnv.closed += 1


class BrokenEnv(TalkativeEnv):
    def __init__(self, size: int) -> None:
        raise FileNotFoundError("no corpus at /nowhere")


@pytest.fixture(autouse=True)
def _register() -> None:
    for name, kind in (("stranger/Talkative-v0", TalkativeEnv), ("stranger/Broken-v0", BrokenEnv)):
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=kind, max_episode_steps=5)
    TalkativeEnv.made = TalkativeEnv.closed = 0


def test_attributes_are_read_through_wrappers_and_never_stale() -> None:
    async def run(pool: EnvPool) -> None:
        handle = await pool.acquire()
        assert handle.attributes.system_prompt == "before"
        await handle.reset(3)
        assert handle.attributes == EnvAttributes(
            "task 3", ({"type": "function", "function": {"name": "look"}},), True, ("</answer>",)
        )
        await handle.reset(3, {"task_id": "b"})
        assert handle.attributes.system_prompt == "task b"
        assert await handle.demonstration() == ["look", "take"]

    with EnvPool(EnvConfig(id="stranger/Talkative-v0")) as pool:
        assert pool.task_ids == ("a", "b")
        assert pool.training_only == ("shake",)
        asyncio.run(run(pool))


def test_a_stranger_tells_nothing(echo_env_id) -> None:
    async def run(pool: EnvPool) -> None:
        handle = await pool.acquire()
        assert handle.attributes == EnvAttributes()
        assert await handle.demonstration() is None

    with EnvPool(EnvConfig(id=echo_env_id)) as pool:
        assert (pool.task_ids, pool.training_only) == (None, ())
        asyncio.run(run(pool))


def test_environments_are_reused_and_closed() -> None:
    async def run(pool: EnvPool) -> None:
        for _ in range(5):
            first, second = await pool.acquire(), await pool.acquire()
            await asyncio.gather(first.reset(0), second.reset(1))
            pool.release(first)
            pool.release(second)

    with EnvPool(EnvConfig(id="stranger/Talkative-v0")) as pool:
        asyncio.run(run(pool))
        assert TalkativeEnv.made == 2
    deadline = time.monotonic() + 30
    while TalkativeEnv.closed < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert TalkativeEnv.closed == 2


@pytest.mark.parametrize("fail", ["step", "hang_step"])
def test_what_failed_or_hangs_is_replaced(echo_env_id, fail) -> None:
    async def run(pool: EnvPool) -> None:
        handle = await pool.acquire()
        await handle.reset(0)
        with pytest.raises((KeyError, TimeoutError)):
            await handle.step("x")
        assert handle.broken
        pool.release(handle)
        other = await pool.acquire()
        assert other is not handle
        assert (await other.reset(0))[0].startswith("say ")

    started = time.perf_counter()
    with EnvPool(EnvConfig(id=echo_env_id, kwargs={"fail": fail}, step_timeout_s=0.2)) as pool:
        asyncio.run(run(pool))
    assert time.perf_counter() - started < 20  # nobody waited for the hung one


def test_a_cancelled_call_leaves_its_environment_unusable(echo_env_id) -> None:
    async def run(pool: EnvPool) -> None:
        handle = await pool.acquire()
        await handle.reset(0)
        task = asyncio.create_task(handle.step("x"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert handle.broken

    with EnvPool(EnvConfig(id=echo_env_id, kwargs={"fail": "hang_step"})) as pool:
        asyncio.run(run(pool))


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        (EnvConfig(), ConfigError, "env.id is empty"),
        (EnvConfig(id="x/Y-v0", step_timeout_s=0), ConfigError, "env.step_timeout_s = 0"),
        (EnvConfig(id="stranger/Ecko-v0"), EnvironmentLoadError, "Did you mean: `Echo`.*before the id"),
        (EnvConfig(id="stranger/Echo-v7"), EnvironmentLoadError, "v7.*env.imports"),
        (EnvConfig(id="strangers/Echo-v0"), EnvironmentLoadError, "Did you mean: `stranger`"),
        (EnvConfig(id="no_such_module:x/Y-v0"), EnvironmentLoadError, "No module named 'no_such_module'"),
        (EnvConfig(id="a:b:c"), EnvironmentLoadError, "a:b:c"),
        (EnvConfig(id="x/Y-v0", imports=("no_such_module",)), EnvironmentLoadError, "env.imports: 'no_such_module'"),
        (EnvConfig(id="stranger/Broken-v0", kwargs={"size": 3}), EnvironmentLoadError, "'size': 3.*no corpus at"),
        (EnvConfig(id="stranger/Echo-v0", kwargs={"trns": 3}), EnvironmentLoadError, "unexpected keyword .*'trns'"),
        (EnvConfig(id="stranger/Talkative-v0", kwargs={"fail_tasks": True}), EnvironmentLoadError, "task_ids failed"),
    ],
)
def test_what_cannot_be_made_is_told_at_once(config, error, message) -> None:
    with pytest.raises(error, match=message):
        EnvPool(config)


def test_evaluation_kwargs_lie_over_the_others(echo_env_id) -> None:
    async def run(pool: EnvPool) -> Any:
        return (await pool.acquire()).attribute("turns"), (await pool.acquire()).attribute("slow_s")

    with EnvPool(EnvConfig(id=echo_env_id, kwargs={"turns": 3, "slow_s": 0.1}), extra_kwargs={"turns": 9}) as pool:
        assert asyncio.run(run(pool)) == (9, 0.1)


PROGRAM = """
    import asyncio, gymnasium, sys
    from agentr1_train.config import EnvConfig
    from agentr1_train.env_pool import EnvPool

    async def run(pool):
        handle = await pool.acquire()
        try:
            await handle.reset(0)
        except TimeoutError as error:
            print(error)
        pool.release(handle)

    with EnvPool(EnvConfig(id="hanging_env:Hanging-v0", reset_timeout_s=0.2)) as pool:
        asyncio.run(run(pool))
    print("end")
"""
HANGING = """
    import gymnasium, time

    class Hanging(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Text(3)
        def reset(self, *, seed=None, options=None):
            time.sleep(1000)

    gymnasium.register("Hanging-v0", entry_point=Hanging)
"""


def test_a_hung_environment_does_not_keep_the_process_alive(tmp_path) -> None:
    (tmp_path / "hanging_env.py").write_text(textwrap.dedent(HANGING))
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["no answer within 0.2 s", "end"]), done.stderr
