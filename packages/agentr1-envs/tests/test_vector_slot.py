"""What becomes of an environment of a vector that raises, hangs or cannot be reset: for real, in its thread."""

import threading
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from agentr1_envs.vector import ThreadVectorEnv
from gymnasium.vector import AutoresetMode

pytestmark = pytest.mark.once

MakeVector = Callable[..., ThreadVectorEnv]
SOON = 20.0
"""Seconds within which what holds nobody is done, on a busy machine."""


@pytest.mark.parametrize("order", ["raise", "exit"])
def test_an_exception_ends_one_episode_as_data(
    alone: Callable[[int], str], vector: MakeVector, made: list[Any], order: str
) -> None:
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
    vector: MakeVector, made: list[Any], gate: threading.Event, mode: AutoresetMode
) -> None:
    envs = vector(3, step_timeout_s=1.0, autoreset_mode=mode)
    envs.set_attr("mood", "glad")
    envs.reset(seed=1)
    envs.step(("a", "b", "c"))
    started = time.monotonic()
    observations, _, _, truncated, infos = envs.step(("d", "hang", "e"))
    assert time.monotonic() - started < SOON
    assert truncated.tolist() == [False, True, False]
    final = infos["final_info"] if mode is AutoresetMode.SAME_STEP else infos
    assert final["error"][1] == "TimeoutError: no answer to step() within 1 s"
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
    vector: MakeVector, made: list[Any], order: str, reason: str
) -> None:
    envs = vector(2, reset_timeout_s=1.0)
    envs.reset(seed=1)
    observations, infos = envs.reset(options=[None, {"reset": order}])
    assert observations[1] == ""
    assert (infos["end_reason"][1], infos["success"].tolist()) == (reason, [False, False])
    observations, _, _, truncated, infos = envs.step(("a", "b"))
    assert (observations, truncated.tolist()) == (("a 1", ""), [False, True])
    assert (
        infos["error"][1]
        == {
            "timeout": "TimeoutError: no answer to reset() within 1 s",
            "error": "OSError: no corpus",
        }[reason]
    )
    assert envs.step(("a", "ignored"))[0][1].startswith("opening")
    assert len(made) == 3
    assert envs.step(("a", "b"))[0] == ("a 3", "b 1")


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_autoreset_that_fails_is_an_episode_too(vector: MakeVector, made: list[Any], mode: AutoresetMode) -> None:
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
        envs = vector(1, step_timeout_s=1.0)
        envs.reset(seed=seed)
        envs.step(("hang",))
        return [envs.step(("x",))[0][0], envs.step(("end",))[0][0], envs.step(("x",))[0][0]]

    assert play(5) == play(5)
    assert play(5) != play(6)


def test_if_none_ever_came_up_the_error_is_raised(alone: Callable[[int], str], vector: MakeVector) -> None:
    envs = vector(2)
    with pytest.raises(OSError, match="no corpus"):
        envs.reset(seed=1, options={"reset": "raise"})
    assert envs.reset(seed=1)[0] == (alone(1), alone(2))
    assert envs.reset(options={"reset": "raise"})[1]["error"].tolist() == ["OSError: no corpus"] * 2


def test_what_has_arrived_counts_however_late_it_is_asked_for(vector: MakeVector) -> None:
    envs = vector(1, step_timeout_s=0.5)
    envs.reset(seed=1)
    envs.send({0: "a"})
    time.sleep(1.5)
    assert envs.receive()[0].observation == "a 1"


def test_a_method_that_hangs_costs_one_episode(vector: MakeVector, made: list[Any]) -> None:
    envs = vector(2, reset_timeout_s=1.0)
    envs.reset(seed=1)
    made[0].mood = "hang"
    with pytest.raises(TimeoutError, match=r"Environment 0.* 1 s"):
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
