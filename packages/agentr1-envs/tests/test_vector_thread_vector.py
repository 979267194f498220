"""What a vector of threads promises, with environments that really sleep, raise and hang."""

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.spaces import Text
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


MakeVector = Callable[..., ThreadVectorEnv]


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
def vector(made: list[Obeying], gate: threading.Event) -> Iterator[MakeVector]:
    """Makes vectors of obeying environments, and closes them after the test."""
    vectors: list[ThreadVectorEnv] = []

    def _make(num_envs: int = 2, **settings: Any) -> ThreadVectorEnv:
        vectors.append(ThreadVectorEnv([lambda: Obeying(gate, made)] * num_envs, **settings))
        return vectors[-1]

    yield _make
    gate.set()
    for each in vectors:
        each.close()


def alone(seed: int) -> str:
    """How an environment opens with this seed."""
    return Obeying(threading.Event(), []).reset(seed=seed)[0]


# The standard interface


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_answers_are_those_of_gymnasiums_sync_vector(vector: MakeVector, mode: AutoresetMode) -> None:
    ours = vector(3, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: Obeying(threading.Event(), [])] * 3, autoreset_mode=mode)
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


def test_seeds_and_options(vector: MakeVector, made: list[Obeying]) -> None:
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


def test_a_mask_resets_some(vector: MakeVector, made: list[Obeying]) -> None:
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


def test_call_get_and_set(vector: MakeVector, made: list[Obeying]) -> None:
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


def test_whichever_is_ready_returns_first(vector: MakeVector, gate: threading.Event) -> None:
    envs = vector(3, step_timeout_s=None)
    envs.reset(seed=1)
    envs.send({0: "hang", 1: "a", 2: "b"})
    assert {**envs.receive(at_least=2)}.keys() == {1, 2}
    for turn in range(2, 5):
        assert envs.step_some({2: "c"}) == {2: EnvStep(f"c {turn}", 1.0, False, False, envs_info(envs, 2))}
    envs.send({1: "end"})
    assert envs.receive()[1].terminated
    assert envs.receive(timeout=0.01) == {}
    gate.set()
    assert envs.receive(at_least=9)[0].observation == "hang 1"


def envs_info(envs: ThreadVectorEnv, index: int) -> dict[str, Any]:
    """The info that a step of this environment carries."""
    seed = [1, 2, 3][index]
    return {"task_id": alone(seed).split()[1], "reward/task": 1.0, "success": False}


def test_some_are_reset_while_others_play(vector: MakeVector) -> None:
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


# Faults


@pytest.mark.parametrize("order", ["raise", "exit"])
def test_an_exception_ends_one_episode_as_data(vector: MakeVector, made: list[Obeying], order: str) -> None:
    envs = vector(3)
    envs.reset(seed=1)
    envs.step(("a", "b", "c"))
    observations, rewards, terminated, truncated, infos = envs.step(("d", order, "e"))
    assert observations == ("d 2", "b 1", "e 2")
    assert (rewards.tolist(), terminated.tolist(), truncated.tolist()) == ([1, 0, 1], [False] * 3, [False, True, False])
    said = "OSError: no corpus" if order == "raise" else "SystemExit: leaving"
    assert infos["error"].tolist() == [None, said, None]
    assert infos["_error"].tolist() == [False, True, False]
    assert (infos["end_reason"][1], infos["success"][1], infos["reward/task"][1]) == ("error", False, 0.0)
    assert infos["task_id"][1] == alone(2).split()[1]
    observations, _, _, truncated, infos = envs.step(("f", "ignored", "g"))
    assert observations[1].startswith("opening")
    assert not truncated.any()
    assert "error" not in infos
    assert len(made) == 3


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_one_that_hangs_is_truncated_and_replaced(
    vector: MakeVector, made: list[Obeying], gate: threading.Event, mode: AutoresetMode
) -> None:
    envs = vector(3, step_timeout_s=0.3, autoreset_mode=mode)
    envs.set_attr("mood", "glad")
    envs.reset(seed=1)
    envs.step(("a", "b", "c"))
    started = time.monotonic()
    observations, _, _, truncated, infos = envs.step(("d", "hang", "e"))
    assert time.monotonic() - started < SOON
    assert truncated.tolist() == [False, True, False]
    final = infos["final_info"] if mode is AutoresetMode.SAME_STEP else infos
    assert final["error"][1] == "TimeoutError: no answer to step() within 0.3 s"
    assert final["end_reason"][1] == "timeout"
    if mode is AutoresetMode.SAME_STEP:
        assert infos["final_obs"][1] == "b 1"
    elif mode is AutoresetMode.DISABLED:
        assert envs.reset(options={"reset_mask": truncated})[0][1].startswith("opening")
    else:
        observations, *_ = envs.step(("f", "ignored", "g"))
    assert observations[1].startswith("opening") or mode is AutoresetMode.DISABLED
    assert len(made) == 4
    assert envs.get_attr("mood") == ("glad",) * 3
    assert envs.step(("h", "i", "j"))[0][1] == "i 1"
    gate.set()
    ended = time.monotonic() + SOON
    while not made[1].closed and time.monotonic() < ended:
        time.sleep(0.01)
    assert made[1].closed
    assert envs.step(("k", "l", "m"))[0][1] == "l 2"


@pytest.mark.parametrize(("order", "reason"), [("hang", "timeout"), ("raise", "error")])
def test_a_reset_that_fails_is_an_episode_that_the_next_step_ends(
    vector: MakeVector, made: list[Obeying], order: str, reason: str
) -> None:
    envs = vector(2, reset_timeout_s=0.3)
    envs.reset(seed=1)
    observations, infos = envs.reset(options=[None, {"reset": order}])
    assert observations[1] == ""
    assert (infos["end_reason"][1], infos["success"].tolist()) == (reason, [False, False])
    observations, _, _, truncated, infos = envs.step(("a", "b"))
    assert (observations, truncated.tolist()) == (("a 1", ""), [False, True])
    assert (
        infos["error"][1]
        == {
            "timeout": "TimeoutError: no answer to reset() within 0.3 s",
            "error": "OSError: no corpus",
        }[reason]
    )
    assert envs.step(("a", "ignored"))[0][1].startswith("opening")
    assert len(made) == 3
    assert envs.step(("a", "b"))[0] == ("a 3", "b 1")


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_autoreset_that_fails_is_an_episode_too(
    vector: MakeVector, made: list[Obeying], mode: AutoresetMode
) -> None:
    envs = vector(2, autoreset_mode=mode)
    envs.reset(seed=1)
    made[1].order = "raise"
    step = envs.step(("a", "end"))
    assert (step[2].tolist(), step[3].tolist()) == ([False, True], [False, False])
    if mode is AutoresetMode.SAME_STEP:
        assert (step[4]["final_obs"][1], step[4]["final_info"]["success"][1]) == ("end 1", True)
    else:
        step = envs.step(("a", "ignored"))
    assert (step[0][1], step[4]["error"][1]) == ("", "OSError: no corpus")
    step = envs.step(("a", "b"))
    assert step[3].tolist() == [False, True]
    final = step[4]["final_info"] if mode is AutoresetMode.SAME_STEP else step[4]
    assert final["error"][1] == "OSError: no corpus"


def test_a_replacement_draws_the_same_in_a_run_with_the_same_faults(vector: MakeVector) -> None:
    def play(seed: int) -> list[str]:
        envs = vector(1, step_timeout_s=0.2)
        envs.reset(seed=seed)
        envs.step(("hang",))
        return [envs.step(("x",))[0][0], envs.step(("end",))[0][0], envs.step(("x",))[0][0]]

    assert play(5) == play(5)
    assert play(5) != play(6)


def test_if_none_ever_came_up_the_error_is_raised(vector: MakeVector) -> None:
    envs = vector(2)
    with pytest.raises(OSError, match="no corpus"):
        envs.reset(seed=1, options={"reset": "raise"})
    assert envs.reset(seed=1)[0] == (alone(1), alone(2))
    assert envs.reset(options={"reset": "raise"})[1]["error"].tolist() == ["OSError: no corpus"] * 2


def test_what_has_arrived_counts_however_late_it_is_asked_for(vector: MakeVector) -> None:
    envs = vector(1, step_timeout_s=0.2)
    envs.reset(seed=1)
    envs.send({0: "a"})
    time.sleep(0.4)
    assert envs.receive()[0].observation == "a 1"


def test_a_method_that_hangs_costs_one_episode(vector: MakeVector, made: list[Obeying]) -> None:
    envs = vector(2, reset_timeout_s=0.3)
    envs.reset(seed=1)
    made[0].mood = "hang"
    with pytest.raises(TimeoutError, match=r"Environment 0.*0.3 s"):
        envs.call("whistle")
    observations, _, _, truncated, infos = envs.step(("a", "b"))
    assert (observations[1], truncated.tolist(), infos["end_reason"][0]) == ("b 1", [True, False], "timeout")
    assert envs.step(("x", "b"))[0][0].startswith("opening")


def test_what_an_environment_returned_it_cannot_change_later() -> None:
    class Reusing(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(0, 9, (1,), np.int64)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self) -> None:
            self.seen, self.noted = np.zeros(1, np.int64), {"notes": [0]}

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.seen[0] = self.noted["notes"][0] = 0
            return self.seen, self.noted

        def step(self, action: Any) -> Any:
            self.seen[0] = self.noted["notes"][0] = 7
            return self.seen, 0.0, True, False, self.noted

    envs = ThreadVectorEnv([Reusing], autoreset_mode="SameStep")
    envs.reset()
    observations, *_, infos = envs.step(np.array([1]))
    assert observations.tolist() == [[0]]
    assert infos["final_obs"][0].tolist() == [7]
    assert infos["final_info"]["notes"][0] == [7]
    envs.close()


# The end


def test_closing_ends_the_threads_and_waits_for_no_hung_one(vector: MakeVector, made: list[Obeying]) -> None:
    before = set(threading.enumerate())
    envs = vector(3, step_timeout_s=None)
    envs.reset(seed=1)
    envs.send({1: "hang"})
    threads = set(threading.enumerate()) - before
    started = time.monotonic()
    envs.close(timeout=0.2)
    assert time.monotonic() - started < SOON
    assert [env.closed for env in made] == [True, False, True]
    assert sum(thread.is_alive() for thread in threads) == 1


def test_threads_of_a_vector_nobody_closed_end_with_it(made: list[Obeying], gate: threading.Event) -> None:
    before = set(threading.enumerate())
    envs = ThreadVectorEnv([lambda: Obeying(gate, made)] * 2)
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
