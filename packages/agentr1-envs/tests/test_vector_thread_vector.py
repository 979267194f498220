"""What a vector of threads promises, with environments that really sleep, raise and hang."""

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.vector import EnvStep, ThreadVectorEnv
from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    InvalidAction,
    NoAsyncCallError,
    ResetNeeded,
)
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics

SOON = 20.0
"""Seconds within which what holds nobody is done, on a busy machine."""


MakeVector = Callable[..., ThreadVectorEnv]


# The standard interface


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_answers_are_those_of_gymnasiums_sync_vector(vector: MakeVector, obeying: Any, mode: AutoresetMode) -> None:
    ours = vector(3, autoreset_mode=mode)
    theirs = SyncVectorEnv([obeying] * 3, autoreset_mode=mode)
    script = [("a", "end", "b"), ("end", "c", "d"), ("e", "f", "end"), ("g", "h", "i")]
    pairs = [(ours.reset(seed=4), theirs.reset(seed=4))]
    for actions in script:
        pairs.append((ours.step(actions), theirs.step(actions)))
        over = np.logical_or(pairs[-1][0][2], pairs[-1][0][3])
        if mode is AutoresetMode.DISABLED and over.any():
            pairs.append(tuple(each.reset(options={"reset_mask": over}) for each in (ours, theirs)))
    for mine, expected in pairs:
        np.testing.assert_equal(mine, expected)
        assert list(mine[-1]) == list(expected[-1])
        assert [value.dtype for value in mine[1:-1]] == [value.dtype for value in expected[1:-1]]
    assert ours.metadata["autoreset_mode"] is mode
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)


def test_numeric_environments_work_as_in_gymnasiums_sync_vector() -> None:
    make = [lambda: gymnasium.make("CartPole-v1")] * 2
    ours, theirs = ThreadVectorEnv(make), SyncVectorEnv(make)
    np.testing.assert_equal(ours.reset(seed=3), theirs.reset(seed=3))
    for _ in range(30):
        np.testing.assert_equal(ours.step(np.array([1, 0])), theirs.step(np.array([1, 0])))
    ours.close()
    theirs.close()


def test_seeds_and_options(alone: Callable[[int], str], vector: MakeVector, made: list[Any]) -> None:
    envs = vector(3)
    assert envs.reset(seed=7)[0] == (alone(7), alone(8), alone(9))
    assert envs.reset(seed=np.int64(7))[0] == (alone(7), alone(8), alone(9))
    assert envs.reset(seed=[5, 5, 1])[0] == (alone(5), alone(5), alone(1))
    assert envs.np_random_seed == (5, 5, 1)
    assert len(set(envs.reset()[0])) > 1
    envs.reset(options={"level": 2})
    assert [env.options for env in made] == [{"level": 2}] * 3
    envs.reset(options=[{"level": 1}, None, {"level": 3}])
    assert [env.options for env in made] == [{"level": 1}, None, {"level": 3}]


def test_a_mask_resets_some(alone: Callable[[int], str], vector: MakeVector, made: list[Any]) -> None:
    envs = vector(3, autoreset_mode="Disabled")
    first, _ = envs.reset(seed=1)
    given = {"reset_mask": np.array([False, True, False]), "level": 2}
    observations, infos = envs.reset(seed=40, options=given)
    assert observations == (first[0], alone(41), first[2])
    assert infos["_task_id"].tolist() == [False, True, False]
    assert list(given) == ["reset_mask", "level"]
    assert made[1].options == {"level": 2}
    for wrong in (np.array([1, 0, 0]), np.array([True]), np.zeros(3, dtype=bool)):
        with pytest.raises(SettingError, match="reset_mask"):
            envs.reset(options={"reset_mask": wrong})


def test_call_get_and_set(vector: MakeVector, made: list[Any]) -> None:
    envs = vector(2)
    envs.reset(seed=1)
    assert envs.call("render") == ("calm", "calm") == envs.render()
    envs.set_attr("mood", ["glad", "sad"])
    assert envs.get_attr("mood") == ("glad", "sad") == (made[0].mood, made[1].mood)
    envs.set_attr("mood", "calm")
    assert envs.get_attr("mood") == ("calm", "calm")
    with pytest.raises(SettingError, match="values holds 1 entries"):
        envs.set_attr("mood", ["glad"])
    with pytest.raises(AttributeError, match="humour"):
        envs.get_attr("humour")
    assert envs.step(("a", "b"))[0] == ("a 1", "b 1")


def test_gymnasiums_vector_wrappers_fit(vector: MakeVector) -> None:
    envs = DictInfoToList(RecordEpisodeStatistics(vector(2)))
    envs.reset(seed=1)
    envs.step(("a", "a"))
    *_, infos = envs.step(("end", "b"))
    assert infos[0]["episode"]["r"] == 2.0
    assert infos[0]["success"]
    assert "episode" not in infos[1]


def test_wrong_use_is_refused_with_the_remedy(vector: MakeVector) -> None:
    envs = vector(2)
    with pytest.raises(ResetNeeded, match=r"reset\(\)"):
        envs.step(("a", "b"))
    envs.reset(seed=1)
    for wrong in ("ab", ("a",), ("a", 1), ("a", None)):
        with pytest.raises(InvalidAction, match="action"):
            envs.step(wrong)
    with pytest.raises(SettingError, match="seed holds 3"):
        envs.reset(seed=[1, 2, 3])
    for wrong in (lambda: envs.reset(seed=-1), lambda: envs.reset(seed=[1, -1]), lambda: envs.reset_some({0: -1})):
        with pytest.raises(SettingError, match="seed=-1 must be at least 0"):
            wrong()
    with pytest.raises(SettingError, match="no environment 2"):
        envs.send({2: "a"})
    with pytest.raises(NoAsyncCallError, match=r"send\(\)"):
        envs.receive()
    envs.send({0: "a"})
    for again in (lambda: envs.send({0: "a"}), lambda: envs.step(("a", "b")), envs.reset, lambda: envs.call("render")):
        with pytest.raises(AlreadyPendingCallError, match=r"environment 0.*receive\(\)"):
            again()
    assert envs.receive()[0].observation == "a 1"
    for settings in ({"step_timeout_s": 0}, {"reset_timeout_s": -1.0}, {"autoreset_mode": "SameSteps"}):
        with pytest.raises(SettingError):
            vector(1, **settings)
    with pytest.raises(SettingError, match="at least one"):
        vector(0)
    envs.close()
    envs.close()
    with pytest.raises(ClosedEnvironmentError):
        envs.reset()


def test_environments_that_cannot_be_made_or_differ_are_told_at_once() -> None:
    with pytest.raises(gymnasium.error.NameNotFound):
        ThreadVectorEnv([lambda: gymnasium.make("CartPoles-v1")])
    with pytest.raises(SettingError, match="Environment 1"):
        ThreadVectorEnv([lambda: gymnasium.make("CartPole-v1"), lambda: gymnasium.make("Acrobot-v1")])


# Some of the environments


def test_whichever_is_ready_returns_first(
    alone: Callable[[int], str], vector: MakeVector, gate: threading.Event
) -> None:
    envs = vector(3, step_timeout_s=None)
    envs.reset(seed=1)
    envs.send({0: "hang", 1: "a", 2: "b"})
    assert {**envs.receive(at_least=2)}.keys() == {1, 2}
    for turn in range(2, 5):
        info = {"task_id": alone(3).split()[1], "reward/task": 1.0, "success": False}
        assert envs.step_some({2: "c"}) == {2: EnvStep(f"c {turn}", 1.0, False, False, info)}
    envs.send({1: "end"})
    assert envs.receive()[1].terminated
    assert envs.receive(timeout=0.01) == {}
    gate.set()
    assert envs.receive(at_least=9)[0].observation == "hang 1"


def test_some_are_reset_while_others_play(alone: Callable[[int], str], vector: MakeVector) -> None:
    envs = vector(2, autoreset_mode="Disabled")
    envs.reset(seed=1)
    assert envs.step_some({0: "end"})[0].terminated
    with pytest.raises(ResetNeeded, match="Environment 0"):
        envs.step(("a", "b"))
    envs.send({1: "b"})
    opened = envs.reset_some({0: 30}, {0: {"level": 4}})
    assert (opened[0].observation, opened[0].reward, opened[0].terminated) == (alone(30), 0.0, False)
    assert envs.receive()[1].observation == "b 1"
    assert envs.get_attr("options") == ({"level": 4}, None)
    assert envs.step(("a", "b"))[0] == ("a 1", "b 2")


def test_slow_environments_run_side_by_side(vector: MakeVector) -> None:
    envs = vector(12)
    envs.reset(seed=1)
    started = time.monotonic()
    envs.step(("sleep",) * 12)
    assert time.monotonic() - started < 0.5 * 12 / 2


def test_partial_steps_follow_the_autoreset_mode(vector: MakeVector) -> None:
    envs = vector(2, autoreset_mode=AutoresetMode.SAME_STEP)
    envs.reset(seed=1)
    step = envs.step_some({1: "end"})[1]
    assert step.terminated
    assert (step.info["final_obs"], step.info["final_info"]["success"]) == ("end 1", True)
    assert step.observation.startswith("opening")
    envs = vector(2)
    envs.reset(seed=1)
    assert envs.step_some({1: "end"})[1].observation == "end 1"
    step = envs.step_some({1: "ignored"})[1]
    assert step.observation.startswith("opening")
    assert (step.reward, step.terminated, step.truncated) == (0.0, False, False)


# The end


def test_closing_ends_the_threads_and_waits_for_no_hung_one(vector: MakeVector, made: list[Any]) -> None:
    before = set(threading.enumerate())
    envs = vector(3, step_timeout_s=None)
    envs.reset(seed=1)
    envs.send({1: "hang"})
    threads = set(threading.enumerate()) - before
    started = time.monotonic()
    envs.close(timeout=2.0)
    assert time.monotonic() - started < SOON
    assert [env.closed for env in made] == [True, False, True]
    assert sum(thread.is_alive() for thread in threads) == 1


def test_threads_of_a_vector_nobody_closed_end_with_it(made: list[Any], obeying: Any) -> None:
    before = set(threading.enumerate())
    envs = ThreadVectorEnv([obeying] * 2)
    envs.reset(seed=1)
    threads = set(threading.enumerate()) - before
    assert len(threads) == 2
    del envs
    gc.collect()
    for thread in threads:
        thread.join(SOON)
    assert [env.closed for env in made] == [True, True]


HANGING = """
import time, gymnasium
from agentr1_envs.spaces import Text
from agentr1_envs.vector import ThreadVectorEnv

class Hanging(gymnasium.Env):
    observation_space = action_space = Text()
    def reset(self, *, seed=None, options=None):
        return "", {}
    def step(self, action):
        while True:
            time.sleep(3600)

envs = ThreadVectorEnv([Hanging] * 2, step_timeout_s=0.2)
envs.reset()
print(envs.step(("", ""))[4]["end_reason"].tolist())
envs.send({0: ""})
"""


def test_a_hung_thread_does_not_keep_the_process() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", HANGING], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['timeout', 'timeout']\n", "")
