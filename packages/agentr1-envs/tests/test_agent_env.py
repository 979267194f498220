import itertools
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import pytest
from agentr1_envs import AgentEnv, Task, TaskSet, Turn
from agentr1_envs.errors import InfoSchemaError, SettingError, UnknownTaskError
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env

pytestmark = pytest.mark.once

TASKS = TaskSet("toy", "train", tuple(Task(f"t{i}", "train", f"say {i}", (str(i),)) for i in range(20)), "here")

PRINT_EPISODE = """
import gymnasium
env = gymnasium.make("agentr1_envs:{env_id}", **{kwargs})
for seed in (0, 1, 5):
    print(env.reset(seed=seed))
    for action in env.get_wrapper_attr("demonstration")():
        print(env.step(action))
print(env.reset())
print(env.unwrapped.system_prompt, env.unwrapped.tool_schemas, env.unwrapped.task_ids)
"""


class Echo(AgentEnv):
    """Ends when the model says the number."""

    extra_info: ClassVar[dict[str, Any]] = {"said": 0}

    def begin(self, task: Task) -> str:
        self.said = 0
        return task.question

    def advance(self, action: str) -> Turn:
        self.said += 1
        right = action == self.task.answers[0]
        return Turn(f"heard {action}", {"task": float(right)}, "said" if right else "", right, {"said": self.said})


def test_gymnasium_checks_every_env(any_env: tuple[str, dict[str, Any]]) -> None:
    env_id, kwargs = any_env
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(env_id, **kwargs)
        check_env(env)
        check_env(env.unwrapped)
        env.close()
        rendered = gymnasium.make(env_id, render_mode="ansi", **kwargs)
        rendered.reset(seed=0)
        assert rendered.unwrapped.task.question in rendered.render()
        rendered.close()


def test_the_scripted_expert_succeeds_in_every_env(any_env: tuple[str, dict[str, Any]], make: Any, expert: Any) -> None:
    env = make(any_env[0], **any_env[1])
    assert len(env.task_ids) == len(set(env.task_ids)) >= 20
    for task_id in env.task_ids[:40]:
        steps = expert(env, task_id)
        assert [terminated for _, _, terminated, _, _ in steps] == [False] * (len(steps) - 1) + [True]
        _, reward, _, truncated, info = steps[-1]
        paid_at_the_end = 0.0 if "PaperSearch" in any_env[0] else 1.0  # a paper search pays for what its steps find
        assert (reward, truncated, info["success"], info["task_id"]) == (paid_at_the_end, False, True, task_id)
        assert not any(step[4]["success"] for step in steps[:-1])


def test_environments_of_a_process_share_the_tasks(any_env: tuple[str, dict[str, Any]], make: Any) -> None:
    first, second = (make(any_env[0], **any_env[1]) for _ in range(2))
    assert first.tasks is second.tasks


def test_info_keeps_its_schema(any_env: tuple[str, dict[str, Any]], make: Any) -> None:
    env = make(any_env[0], **any_env[1])
    infos = [env.reset(seed=3)[1]]
    script = env.demonstration()
    for action in [*script[:-1], "nonsense <tool_call>{", script[-1]]:
        *_, terminated, truncated, info = env.step(action)
        infos.append(info)
        if terminated or truncated:
            break
    schema = {name: type(value) for name, value in infos[0].items()}
    assert set(schema.values()) <= {bool, int, float, str, tuple}
    for info in infos:
        assert {name: type(value) for name, value in info.items()} == schema
    assert len({id(info) for info in infos}) == len(infos)


def test_a_seed_replays_and_seeds_differ(any_env: tuple[str, dict[str, Any]], make: Any) -> None:
    env = make(any_env[0], **any_env[1])
    first = [env.reset(seed=seed) for seed in range(12)]
    env.step("nonsense")
    assert [env.reset(seed=seed) for seed in range(12)] == first
    assert len({info["task_id"] for _, info in first}) > 1
    assert len({str(observation) for observation, _ in first}) > 1
    env.reset(seed=0)
    drawn = [env.reset() for _ in range(6)]
    env.reset(seed=0)
    assert [env.reset() for _ in range(6)] == drawn
    assert len({info["task_id"] for _, info in drawn}) > 1


def test_a_named_task_is_played_and_not_the_next_one(any_env: tuple[str, dict[str, Any]], make: Any) -> None:
    env = make(any_env[0], **any_env[1])
    named = {"task_id": env.task_ids[2]}
    opening = env.reset(seed=1, options=named)
    assert opening[1]["task_id"] == env.task_ids[2]
    env.reset()
    assert env.reset(seed=1, options=named) == opening


def test_a_limit_is_no_success_and_success_is_of_one_episode(any_env: tuple[str, dict[str, Any]], make: Any) -> None:
    env_id, kwargs = any_env
    env = make(env_id, **{**kwargs, "max_steps": 1} if kwargs.get("mode") not in ("single", "context") else kwargs)
    env.reset(seed=3)
    *_, terminated, truncated, info = env.step("nonsense <tool_call>{")
    assert terminated or truncated
    assert not info["success"]
    env = make(env_id, **kwargs)
    opening = env.reset(seed=3)
    for action in env.demonstration():
        *_, info = env.step(action)
    assert info["success"]
    observation, info = env.reset(seed=3)
    assert (observation, info) == opening
    assert not info["success"]
    assert not env.step("nonsense <tool_call>{")[4]["success"]


NOTHING_BUT_PYTHON = """
import sys
def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"):
        raise RuntimeError(f"{event} {args}")
sys.addaudithook(refuse)
import agentr1_envs, gymnasium
for env_id in set(agentr1_envs.ENTRY_POINTS) - {"agentr1/Remote-v0"}:  # that one needs a server
    env = gymnasium.make(env_id)
    env.reset(seed=0)
    env.step("nonsense")
    env.close()
print([name for name in ("textworld", "alfworld", "fast_downward", "spacy", "torch", "jnius") if name in sys.modules])
"""


def test_every_default_environment_needs_no_download_no_compiler_and_no_other_engine(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", NOTHING_BUT_PYTHON],
        env={**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_same_seed_same_text_in_another_process(any_env: tuple[str, dict[str, Any]], hash_seed: str, make: Any) -> None:
    script = PRINT_EPISODE.format(env_id=any_env[0], kwargs=any_env[1])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    env = make(any_env[0], **any_env[1])
    lines = []
    for seed in (0, 1, 5):
        lines.append(str(env.reset(seed=seed)))
        lines += [str(env.step(action)) for action in env.demonstration()]
    lines.append(str(env.reset()))
    lines.append(f"{env.system_prompt} {env.tool_schemas} {env.task_ids}")
    assert done.stdout == "\n".join(lines) + "\n"


def test_the_seed_draws_the_task() -> None:
    env = Echo(TASKS)
    drawn = [env.reset(seed=seed)[1]["task_id"] for seed in range(40)]
    assert drawn == [env.reset(seed=seed)[1]["task_id"] for seed in range(40)]
    assert len(set(drawn)) > 12
    env.reset(seed=0)
    going_on = [env.reset()[1]["task_id"] for _ in range(5)]
    assert len(set(going_on)) > 1
    env.reset(seed=0)
    assert going_on == [env.reset()[1]["task_id"] for _ in range(5)]


def test_the_task_can_be_named() -> None:
    env = Echo(TASKS)
    assert env.task_ids == tuple(f"t{i}" for i in range(20))
    for task_id in ("t19", "t0"):
        observation, info = env.reset(seed=1, options={"task_id": task_id})
        assert (observation, info["task_id"]) == (f"say {task_id[1:]}", task_id)
    with pytest.raises(UnknownTaskError, match=r"'t20'.*20 tasks.*Did you mean"):
        env.reset(options={"task_id": "t20"})
    with pytest.raises(SettingError, match=r"'task'.*Did you mean 'task_id'"):
        env.reset(options={"task": "t1"})


def test_order_is_kept() -> None:
    env = Echo(TASKS)
    with pytest.raises(ResetNeeded):
        env.step("1")
    env.reset(options={"task_id": "t1"})
    with pytest.raises(InvalidAction, match="int"):
        env.step(1)  # type: ignore[arg-type]
    env.step("1")
    with pytest.raises(ResetNeeded, match="t1"):
        env.step("1")


def test_a_reset_that_failed_leaves_no_episode() -> None:
    class Failing(Echo):
        def begin(self, task: Task) -> str:
            raise OSError("no corpus")

    env = Failing(TASKS)
    with pytest.raises(OSError, match="no corpus"):
        env.reset(seed=0)
    with pytest.raises(ResetNeeded):
        env.step("1")


def test_the_step_limit_truncates_and_is_no_success() -> None:
    env = Echo(TASKS, max_steps=2)
    env.reset(options={"task_id": "t7"})
    assert env.step("no")[2:4] == (False, False)
    observation, reward, terminated, truncated, info = env.step("still no")
    assert (observation, reward, terminated, truncated) == ("heard still no", 0.0, False, True)
    assert (info["success"], info["end_reason"]) == (False, "max_steps")


def test_success_in_the_last_step_terminates() -> None:
    env = Echo(TASKS, max_steps=1)
    env.reset(options={"task_id": "t7"})
    _, reward, terminated, truncated, info = env.step("7")
    assert (reward, terminated, truncated, info["success"], info["end_reason"]) == (1.0, True, False, True, "said")


def test_nothing_leaks_into_the_next_episode() -> None:
    env = Echo(TASKS, max_steps=3, observation="messages", render_mode="ansi")
    env.reset(options={"task_id": "t7"})
    env.step("first")
    env.step("7")
    observation, info = env.reset(options={"task_id": "t8"})
    assert observation == ({"role": "user", "content": "say 8"},)
    assert (info["success"], info["said"], info["steps"], info["reward/task"]) == (False, 0, 0, 0.0)
    assert "first" not in env.render()
    assert env.step("no")[4]["success"] is False


@pytest.mark.parametrize(("history", "kept"), [(None, [0, 1, 2, 3]), (2, [2, 3]), (0, [])])
def test_messages_hold_the_last_steps(history: int | None, kept: list[int]) -> None:
    env = Echo(TASKS, max_steps=9, observation="messages", history=history)
    env.reset(options={"task_id": "t9"})
    for i in range(4):
        observation = env.step(f"a{i}")[0]
    assert observation[0] == {"role": "user", "content": "say 9"}
    said = [message["content"] for message in observation[1:]]
    assert said == list(itertools.chain(*([f"a{i}", f"heard a{i}"] for i in kept)))
    observation[0]["content"] = "changed by the reader"
    assert env.step("b")[0][0]["content"] == "say 9"


def test_settings_without_effect_are_refused() -> None:
    with pytest.raises(SettingError, match="history"):
        Echo(TASKS, history=3)
    with pytest.raises(SettingError, match="max_steps"):
        Echo(TASKS, max_steps=0)
    with pytest.raises(SettingError, match="Did you mean 'messages'"):
        Echo(TASKS, observation="message")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="ansi"):
        Echo(TASKS, render_mode="human")


def test_an_undeclared_info_entry_is_a_bug() -> None:
    class Wrong(Echo):
        def advance(self, action: str) -> Turn:
            return Turn("", info={"sad": 1})

    class WrongType(Echo):
        def advance(self, action: str) -> Turn:
            return Turn("", info={"said": 1.0})

    class WrongPart(Echo):
        def advance(self, action: str) -> Turn:
            return Turn("", {"bonus": 1.0})

    for kind in (Wrong, WrongType, WrongPart):
        env = kind(TASKS)
        env.reset(seed=0)
        with pytest.raises(InfoSchemaError):
            env.step("x")


def test_a_subclass_may_draw_otherwise_and_begin_with_info() -> None:
    class Last(Echo):
        extra_info: ClassVar[dict[str, Any]] = {"said": 0, "hint": ""}

        def draw_task(self) -> Task:
            return self.tasks[len(self.tasks) - 1]

        def opening_info(self) -> dict[str, Any]:
            return {"hint": f"say {self.task.answers[0]}"}

    class Undeclared(Echo):
        def opening_info(self) -> dict[str, Any]:
            return {"hint": "say it"}

    env = Last(TASKS)
    assert {env.reset(seed=seed)[1]["hint"] for seed in range(9)} == {"say 19"}
    assert env.reset(options={"task_id": "t3"})[1]["hint"] == "say 3"
    assert env.step("no")[4]["hint"] == "say 3"
    with pytest.raises(InfoSchemaError, match="hint"):
        Undeclared(TASKS).reset(seed=0)
