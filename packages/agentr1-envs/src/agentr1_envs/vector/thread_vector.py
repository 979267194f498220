"""`ThreadVectorEnv`: environments side by side, each in a thread of its own; a slow, broken or hung one holds nobody.

For environments that wait (on tools, processes, servers): threads share one interpreter, so environments that only
compute gain nothing over `SyncVectorEnv`. What can be passed to `gymnasium.make_vec` is in `entry_points`.
"""

import math
import queue
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from gymnasium import Space
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector import utils as vector_utils
from numpy.typing import NDArray

from agentr1_envs.errors import SettingError
from agentr1_envs.vector import arguments
from agentr1_envs.vector.arguments import Options
from agentr1_envs.vector.slot import EnvSlot, EnvStep
from agentr1_envs.vector.worker import AnyEnv, EnvCall, Outcome

Array = NDArray[Any]
Each = Mapping[int, Mapping[str, Any] | None]

TIMEOUT_S = 60.0
CLOSE_S = 5.0
_FINAL = ("final_obs", "final_info")


class ThreadVectorEnv(VectorEnv[Any, Any, Array]):
    """Environments side by side, each in its own thread.

    `reset` and `step` are those of every Gymnasium vector: observations, rewards, flags and infos of all environments,
    in order. `send` and `receive` step some of them: whichever is ready returns first.

    What goes wrong in one environment ends its episode as data and leaves the others alone: ``truncated``, with
    ``info["error"]`` (what happened), ``info["end_reason"]`` ("error" or "timeout") and ``info["success"]`` false. An
    environment that hangs, or that cannot be reset, is replaced by a fresh one. After an error the last observation
    stands as the final one; a reset that fails shows an empty one, and the next step ends that episode.
    """

    metadata: dict[str, Any]
    observation_space: Space[Any]
    action_space: Space[Any]
    single_observation_space: Space[Any]
    single_action_space: Space[Any]

    def __init__(
        self,
        env_fns: Iterable[Callable[[], AnyEnv]],
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        reset_timeout_s: float | None = TIMEOUT_S,
        step_timeout_s: float | None = TIMEOUT_S,
    ) -> None:
        """Make the environments, one after another.

        Args:
            env_fns: each makes one environment, and another one if that has to be replaced.
            autoreset_mode: Gymnasium's: "NextStep" (the step after the last one resets), "SameStep" (the last step
                resets; what it returned is in ``info["final_obs"]`` and ``info["final_info"]``), "Disabled".
            reset_timeout_s: seconds that a reset may take, making the environment included; None sets no limit.
            step_timeout_s: the same for a step.

        Raises:
            SettingError: no environment, an unknown mode, a limit that is not positive, or environments whose spaces
                differ. Exception: what making an environment raised; TimeoutError where it took too long.
        """
        makers = list(env_fns)
        if not makers:
            raise SettingError("A vector needs at least one environment; env_fns is empty.")
        self.autoreset_mode = arguments.autoreset_mode_of(autoreset_mode)
        self.reset_timeout_s = arguments.check_limit("reset_timeout_s", reset_timeout_s)
        self.step_timeout_s = arguments.check_limit("step_timeout_s", step_timeout_s)
        self.num_envs = len(makers)
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._ready: dict[int, EnvStep] = {}
        self._came_up = False
        limits = (reset_timeout_s, step_timeout_s)
        self._slots = [
            EnvSlot(index, make, self._outcomes, self.autoreset_mode, limits) for index, make in enumerate(makers)
        ]
        # Of a vector nobody closed: its threads end once nothing refers to it.
        self._finalizer = weakref.finalize(self, _close_slots, self._slots)
        self._finalizer.atexit = False
        try:
            self._describe([self._ask([slot], _description)[0] for slot in self._slots])
        except BaseException:
            self._finalizer()
            raise

    def reset(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *, seed: int | Sequence[int | None] | None = None, options: Options = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every environment, or in those of a mask.

        Args:
            seed: an int seeds environment i with ``seed + i``; a list holds one for each; None goes on drawing.
            options: passed to every reset, or a list of one for each. ``{"reset_mask": mask}``, a bool array of shape
                (num_envs,), resets some and leaves the others as they are.

        Raises:
            SettingError: seeds, options or a mask of another length. AlreadyPendingCallError: an environment has an
                answer that was not received. Exception: what the first reset of all raised, if none came up.
        """
        self._refuse_pending(range(self.num_envs), "reset")
        seeds = arguments.seeds_of(seed, self.num_envs)
        chosen, each = arguments.resets_of(options, self.num_envs)
        opened = self.reset_some({i: seeds[i] for i in chosen}, dict(enumerate(each)))
        self._came_up = self._came_up or any(self._slots[index].error is None for index in chosen)
        if not self._came_up and (error := self._slots[chosen[0]].error) is not None:
            raise error
        infos: dict[str, Any] = {}
        for index in chosen:
            infos = self._add_info(infos, opened[index].info, index)
        return self._batch([slot.observation for slot in self._slots]), infos

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Play an action in every environment.

        Args:
            actions: one for each environment, in order.

        Returns:
            Observations (a tuple for text), rewards (float64), terminated and truncated (bool), each of shape
            (num_envs,), and infos as arrays by key, with ``_key`` telling which environments have it.

        Raises:
            InvalidAction: not one string for each text environment. ResetNeeded: before reset, or in an environment
                whose episode is over with autoreset disabled. AlreadyPendingCallError: as for `reset`.
        """
        given = arguments.actions_of(actions, self.action_space, self.single_action_space, self.num_envs)
        self._refuse_pending(range(self.num_envs), "step")
        steps = self.step_some(dict(enumerate(given)))
        infos: dict[str, Any] = {}
        for index in range(self.num_envs):
            info = steps[index].info
            final = {name: info[name] for name in _FINAL if name in info}
            infos = self._add_info(infos, final, index) if final else infos
            rest = {name: value for name, value in info.items() if name not in _FINAL}
            infos = self._add_info(infos, rest, index)
        return (
            self._batch([slot.observation for slot in self._slots]),
            np.array([steps[index].reward for index in range(self.num_envs)], dtype=np.float64),
            np.array([steps[index].terminated for index in range(self.num_envs)], dtype=np.bool_),
            np.array([steps[index].truncated for index in range(self.num_envs)], dtype=np.bool_),
            infos,
        )

    def send(self, actions: Mapping[int, Any]) -> None:
        """Begin a step in some environments; `receive` returns what they answer.

        Args:
            actions: by number of the environment. Where an episode ended, it begins the next one (in "NextStep").

        Raises:
            SettingError: no such environment. AlreadyPendingCallError: one of them has an answer that was not
                received. InvalidAction and ResetNeeded: as for `step`. Nothing is sent then.
        """
        self._refuse_pending(actions, "send")
        arguments.check_actions(actions.values(), self.single_action_space)
        for index in actions:
            self._slots[index].check_step()
        for index, action in actions.items():
            known = self._slots[index].step(action)
            if known is not None:
                self._ready[index] = known

    def send_reset(self, seeds: Mapping[int, int | None], options: Each | None = None) -> None:
        """Begin an episode in some environments; `receive` returns how they open.

        Args:
            seeds: by number of the environment; None goes on drawing.
            options: by number of the environment, for those that need any.

        Raises:
            SettingError: no such environment, or a negative seed. AlreadyPendingCallError: as for `send`.
        """
        self._refuse_pending(seeds, "send_reset")
        checked = {index: arguments.seed_of(seed) for index, seed in seeds.items()}
        for index, seed in checked.items():
            self._slots[index].reset(seed, (options or {}).get(index))

    def receive(self, *, at_least: int = 1, timeout: float | None = None) -> dict[int, EnvStep]:
        """Return what is ready, by number of the environment, in the order it came; wait until that is something.

        Args:
            at_least: how many to wait for, at least one; all that are under way if those are fewer.
            timeout: seconds to wait at most; then what is ready is returned, which may be nothing. 0 only looks.

        Raises:
            NoAsyncCallError: nothing was sent.
        """
        sent = sum(slot.waiting for slot in self._slots) + len(self._ready)
        if not sent:
            raise NoAsyncCallError("Nothing was sent: call send() or send_reset() before receive().", "receive")
        self._wait(lambda: len(self._ready) >= min(max(at_least, 1), sent), timeout)
        while not self._outcomes.empty():
            self._take(self._outcomes.get())
        ready, self._ready = self._ready, {}
        return ready

    def step_some(self, actions: Mapping[int, Any]) -> dict[int, EnvStep]:
        """Step some environments and wait for those; raises as `send` does."""
        self.send(actions)
        return self._collect(actions)

    def reset_some(self, seeds: Mapping[int, int | None], options: Each | None = None) -> dict[int, EnvStep]:
        """Reset some environments and wait for those; raises as `send_reset` does."""
        self.send_reset(seeds, options)
        return self._collect(seeds)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every environment, or read an attribute; wrappers included.

        Raises:
            AlreadyPendingCallError: as for `reset`. TimeoutError: one took longer than `reset_timeout_s`; it is
                replaced. Exception: what the first one that failed raised.
        """
        self._refuse_pending(range(self.num_envs), "call")
        return tuple(self._ask(self._slots, partial(_use, name, args, kwargs)))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of every environment; raises as `call` does."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment, and of those that replace them: to one value, or to a list's values.

        Raises:
            SettingError: a list of another length. AlreadyPendingCallError: as for `reset`.
        """
        self._refuse_pending(range(self.num_envs), "set_attr")
        given = cast("Sequence[Any]", values) if isinstance(values, list | tuple) else [values] * self.num_envs
        each = arguments.one_for_each("values", given, self.num_envs)
        for slot, value in zip(self._slots, each, strict=True):
            self._ask([slot], partial(_set, name, value))
            slot.keep_attribute(name, value)

    def render(self) -> tuple[Any, ...]:
        """What each environment renders."""
        return self.call("render")

    @property
    def np_random(self) -> tuple[np.random.Generator, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The random number generator of each environment."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The seed of each environment's generator."""
        return self.get_attr("np_random_seed")

    def close_extras(self, timeout: float = CLOSE_S) -> None:
        """Close every environment; one that does not end within `timeout` seconds is left behind with its thread."""
        self._finalizer()
        end = time.monotonic() + timeout
        for slot in self._slots:
            slot.worker.join(max(end - time.monotonic(), 0.0))

    def _describe(self, described: Sequence[tuple[Any, Any, dict[str, Any], str | None]]) -> None:
        observation, action, metadata, render_mode = described[0]
        for index, (other_observation, other_action, _, _) in enumerate(described):
            if (other_observation, other_action) != (observation, action):
                raise SettingError(
                    f"Environment {index} of the vector has spaces {other_observation} and {other_action}; environment "
                    f"0 has {observation} and {action}. A vector needs the same for all."
                )
        self.metadata = {**metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = render_mode
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space = cast("Any", vector_utils).batch_space(observation, self.num_envs)
        self.action_space = cast("Any", vector_utils).batch_space(action, self.num_envs)
        for slot in self._slots:
            slot.space = observation

    def _batch(self, observations: Sequence[Any]) -> Any:
        space = cast("Any", self.single_observation_space)
        empty = vector_utils.create_empty_array(space, n=self.num_envs)
        return vector_utils.concatenate(space, observations, empty)

    def _refuse_pending(self, indices: Iterable[int], name: str) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"{self} is closed; make another one to call {name}().")
        for index in indices:
            if index not in range(self.num_envs):
                raise SettingError(f"{name}(): there is no environment {index!r}; legal: 0 to {self.num_envs - 1}.")
            if self._slots[index].waiting or index in self._ready:
                raise AlreadyPendingCallError(
                    f"{name}(): environment {index} has an answer that was not received; call receive() first.", name
                )

    def _collect(self, indices: Collection[int]) -> dict[int, EnvStep]:
        wanted = set(indices)
        self._wait(lambda: len(self._ready) >= len(wanted) and wanted <= self._ready.keys())
        return {index: self._ready.pop(index) for index in indices}

    def _wait(self, done: Callable[[], bool], timeout: float | None = None) -> None:
        end = math.inf if timeout is None else time.monotonic() + timeout
        while not done():
            # What has arrived counts, however late it is asked for; only then is the clock looked at.
            if (outcome := self._next(0.0)) is None:
                now = time.monotonic()
                late = [slot for slot in self._slots if slot.waiting and _deadline(slot) <= now]
                for slot in late:
                    self._answered(slot, slot.expire())
                if late:
                    continue
                if now >= end:
                    return
                nearest = min((_deadline(slot) for slot in self._slots if slot.waiting), default=math.inf)
                outcome = self._next(min(nearest, end) - now)
            if outcome is not None:
                self._take(outcome)

    def _next(self, seconds: float) -> Outcome | None:
        try:
            return self._outcomes.get(timeout=None if seconds == math.inf else seconds)
        except queue.Empty:
            return None

    def _take(self, outcome: Outcome) -> None:
        slot = self._slots[outcome.index]
        if slot.waits_for(outcome):
            self._answered(slot, slot.settle(outcome))

    def _answered(self, slot: EnvSlot, step: EnvStep | None) -> None:
        if step is not None:
            self._ready[slot.index] = step

    def _ask(self, slots: Sequence[EnvSlot], function: EnvCall) -> list[Any]:
        """Call a function on environments that no episode's call occupies."""
        tickets = {slot.worker.call(function): slot for slot in slots}
        answers: dict[int, Outcome] = {}
        limit = self.reset_timeout_s
        end = math.inf if limit is None else time.monotonic() + limit
        while len(answers) < len(slots):
            outcome = self._next(max(end - time.monotonic(), 0.0))
            if outcome is None:
                silent = [slot for slot in slots if slot.index not in answers]
                error = TimeoutError(f"Environment {silent[0].index} gave no answer within {limit:g} s.")
                for slot in silent:
                    slot.give_up(error)
                raise error
            if outcome.ticket in tickets:
                answers[outcome.index] = outcome
        for slot in slots:
            if (raised := answers[slot.index].error) is not None:
                raise raised
        return [answers[slot.index].value for slot in slots]


def _deadline(slot: EnvSlot) -> float:
    return math.inf if slot.deadline is None else slot.deadline


def _close_slots(slots: Sequence[EnvSlot]) -> None:
    for slot in slots:
        slot.worker.close()


def _description(env: AnyEnv) -> tuple[Any, Any, dict[str, Any], str | None]:
    return env.observation_space, env.action_space, dict(env.metadata), env.render_mode


def _use(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], env: AnyEnv) -> Any:
    found = env.get_wrapper_attr(name)
    return found(*args, **kwargs) if callable(found) else found


def _set(name: str, value: Any, env: AnyEnv) -> None:
    env.set_wrapper_attr(name, value)
