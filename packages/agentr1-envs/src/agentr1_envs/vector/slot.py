"""One place of a vector: the environment that stands in it, its episode, and what becomes of it when it fails.

An environment that raises has ended its episode, and is reset for the next one. One that hangs, or cannot be reset, is
given up with its thread, and a fresh one takes its place. A reset that fails opens an episode that the next step ends,
so that every failure is an episode that was truncated. Nothing here waits: the vector does.
"""

import queue
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from gymnasium import Space
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector import utils as vector_utils

from agentr1_envs.spaces import Messages, Text
from agentr1_envs.vector.worker import AnyEnv, EnvWorker, Outcome

Doing = Literal["reset", "step", "next", "follow"]
"""What a slot waits for: a reset asked for, a step, the reset in place of a step, the reset behind a last step."""


class EnvStep(NamedTuple):
    """What `step` of a Gymnasium environment returns. For a reset: no reward, and both flags false."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class EnvSlot:
    """A place in a vector. `waiting` from a call on until `settle` or `expire` has dealt with it."""

    def __init__(
        self,
        index: int,
        make: Callable[[], AnyEnv],
        outcomes: "queue.SimpleQueue[Outcome]",
        mode: AutoresetMode,
        limits: tuple[float | None, float | None],
    ) -> None:
        """Start the thread of the first environment.

        Args:
            index: number of the place.
            make: makes an environment.
            outcomes: where the threads of this place put what their calls came to.
            mode: when a new episode begins.
            limits: seconds for a reset and for a step; None sets no limit.
        """
        self.index = index
        self.space: Space[Any] | None = None
        """Where observations come from; needed to show one of an episode that could not begin."""
        self.observation: Any = None
        self.deadline: float | None = None
        """When the call under way is given up, on the monotonic clock."""
        self._make, self._outcomes, self._mode = make, outcomes, mode
        self._reset_limit, self._step_limit = limits
        self._doing: Doing | None = None
        self._ticket: object = None
        self._begun, self._over = False, True
        self._lost: dict[str, Any] | None = None
        self._error: BaseException | None = None
        self._last: EnvStep | None = None
        self._info: dict[str, Any] = {}
        self._seed: int | None = None
        self._renewals, self._fresh = 0, False
        self._attributes: dict[str, Any] = {}
        self.worker = self._start()

    @property
    def waiting(self) -> bool:
        """True while an episode's call is under way."""
        return self._doing is not None

    def waits_for(self, outcome: Outcome) -> bool:
        """False for the answer to a call that was given up."""
        return self.waiting and outcome.ticket is self._ticket

    @property
    def error(self) -> BaseException | None:
        """Why the episode is lost that the next step will end; None otherwise."""
        return None if self._lost is None else self._error

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Begin an episode."""
        self._begin("reset", seed, options)

    def check_step(self) -> None:
        """Raise `ResetNeeded` where no episode is under way and the mode begins none."""
        going_on = self._lost is not None or not self._over
        if not going_on and not (self._begun and self._mode is AutoresetMode.NEXT_STEP):
            raise ResetNeeded(
                f"Environment {self.index} plays no episode: call reset() first, for some environments "
                'reset(options={"reset_mask": mask}) or reset_some().'
            )

    def step(self, action: Any) -> EnvStep | None:
        """Play an action, or begin the next episode where the mode says so; what is known at once is returned."""
        if self._lost is not None:
            info, self._lost = self._lost, None
            return self._ended(EnvStep(self.observation, 0.0, False, True, info))
        if self._over:
            self._begin("next", None, None)
        else:
            self._call("step", partial(_step, action), self._step_limit)
        return None

    def settle(self, outcome: Outcome) -> EnvStep | None:
        """Take in what the call under way came to; None while a reset follows."""
        doing, self._doing = self._doing, None
        if outcome.error is not None:
            return self._failed(doing, outcome.error, "error")
        if doing == "step":
            step = cast("EnvStep", outcome.value)
            self.observation, self._info = step.observation, dict(step.info)
            return self._ended(step) if step.terminated or step.truncated else step
        self.observation, self._info = outcome.value
        self._over = False
        return self._opened(doing, dict(self._info))

    def expire(self) -> EnvStep | None:
        """Give up the call under way, its environment and its thread."""
        doing, self._doing = self._doing, None
        self._renew()
        what, limit = ("step", self._step_limit) if doing == "step" else ("reset", self._reset_limit)
        return self._failed(doing, TimeoutError(f"no answer to {what}() within {limit:g} s"), "timeout")

    def give_up(self, error: BaseException) -> None:
        """Replace an environment that did not answer another kind of call; an episode under way is lost."""
        under_way = not self._over
        self._renew()
        if under_way:
            self._lose(error, "timeout")

    def _renew(self) -> None:
        self.worker.close()
        self._renewals, self._fresh, self._over = self._renewals + 1, True, True
        self.worker = self._start()

    def _lose(self, error: BaseException, reason: str) -> dict[str, Any]:
        """Let the next step end the episode. Returns the info that it will carry."""
        zeroed = {name: 0.0 if name.startswith("reward/") else value for name, value in self._info.items()}
        failure = {"success": False, "end_reason": reason, "error": f"{type(error).__name__}: {error}"}
        self._lost, self._error = {**zeroed, **failure}, error
        return self._lost

    def keep_attribute(self, name: str, value: Any) -> None:
        """Remember an attribute that was set, for environments that come later."""
        self._attributes[name] = value

    def _start(self) -> EnvWorker:
        return EnvWorker(self.index, partial(_make, self._make, dict(self._attributes)), self._outcomes)

    def _call(self, doing: Doing, function: Callable[[AnyEnv], Any], limit: float | None) -> None:
        self._doing = doing
        self.deadline = None if limit is None else time.monotonic() + limit
        self._ticket = self.worker.call(function)

    def _begin(self, doing: Doing, seed: int | None, options: Mapping[str, Any] | None) -> None:
        self._lost, self._begun, self._over = None, True, True
        if seed is not None:
            self._seed, self._renewals = seed, 0
        elif self._fresh and self._seed is not None:
            # A fresh environment has no random state to go on with; a run with the same faults draws the same again.
            seed = int(np.random.SeedSequence([self._seed, self._renewals]).generate_state(1)[0])
        self._fresh = False
        given = None if options is None else dict(options)
        self._call(doing, partial(_reset, seed, given), self._reset_limit)

    def _opened(self, doing: Doing | None, info: dict[str, Any]) -> EnvStep:
        opening = EnvStep(self.observation, 0.0, False, False, info)
        last, self._last = self._last, None
        if doing != "follow" or last is None:
            return opening
        info = {**info, "final_obs": last.observation, "final_info": last.info}
        return last._replace(observation=opening.observation, info=info)

    def _ended(self, step: EnvStep) -> EnvStep | None:
        self._over = True
        if self._mode is not AutoresetMode.SAME_STEP:
            return step
        self._last = step
        self._begin("follow", None, None)
        return None

    def _failed(self, doing: Doing | None, error: BaseException, reason: str) -> EnvStep | None:
        if doing == "step":
            info, self._lost = self._lose(error, reason), None
            return self._ended(EnvStep(self.observation, 0.0, False, True, info))
        if reason == "error":  # in the middle of a reset: nobody knows what is left of it
            self._renew()
        self.observation, self._info = blank(self.space), {}
        return self._opened(doing, self._lose(error, reason))


def blank(space: Space[Any] | None) -> Any:
    """The emptiest observation of a space: what is shown where a reset failed. None for a stranger's own space."""
    if isinstance(space, Text):
        return " " * space.min_length
    if isinstance(space, Messages):
        return ()
    batch = vector_utils.create_empty_array(cast("Any", space), n=1)
    if batch is None:
        return None
    return next(iter(vector_utils.iterate(vector_utils.batch_space(cast("Any", space), 1), batch)))


def snapshot(value: Any) -> Any:
    """A copy that the environment cannot change any more."""
    return value if type(value) in _PLAIN else deepcopy(value)


_PLAIN = frozenset((str, int, float, bool, type(None)))


def _make(make: Callable[[], AnyEnv], attributes: Mapping[str, Any]) -> AnyEnv:
    env = make()
    for name, value in attributes.items():
        env.set_wrapper_attr(name, value)
    return env


def _reset(seed: int | None, options: dict[str, Any] | None, env: AnyEnv) -> tuple[Any, dict[str, Any]]:
    observation, info = env.reset(seed=seed, options=options)
    return snapshot(observation), {name: snapshot(value) for name, value in info.items()}


def _step(action: Any, env: AnyEnv) -> EnvStep:
    observation, reward, terminated, truncated, info = env.step(action)
    return EnvStep(
        snapshot(observation),
        float(reward),
        bool(terminated),
        bool(truncated),
        {name: snapshot(value) for name, value in info.items()},
    )
