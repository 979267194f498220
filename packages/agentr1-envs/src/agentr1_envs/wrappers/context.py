"""Context wrappers: from observations that say what is new to the messages the model sees next.

They wrap any Gymnasium environment whose actions and observations are strings, this project's or not. What they return
is a `Messages` observation: the system message where the environment has one, the opening, and as much of the past as
the wrapper keeps. A trainer renders it as it is; where the messages do not extend those of the step before, afresh.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from agentr1_envs.agent_env import Exchange
from agentr1_envs.errors import SettingError
from agentr1_envs.spaces import Message, Messages

__all__ = [
    "AppendContext",
    "Context",
    "Exchange",
    "FirstAndLastContext",
    "MarkovContext",
    "SummaryContext",
    "WindowContext",
]

StateText = Callable[[str, Sequence[Exchange]], str]
"""``(opening, past steps) -> text``."""
Summarise = Callable[[str, Exchange], str]
"""``(summary so far, step that leaves the conversation) -> summary``; the first summary so far is empty."""


class Context(gymnasium.Wrapper[Any, str, str, str], RecordConstructorArgs):
    """Base of the context wrappers. A subclass keeps what it needs (`forget`, `keep`) and shows it (`past`)."""

    def __init__(self, env: gymnasium.Env[Any, Any], **arguments: Any) -> None:
        """Wrap an environment.

        Args:
            env: its observations are what is new, as strings.
            arguments: the subclass's own, recorded for `spec`.

        Raises:
            SettingError: the environment's observations are messages already.
        """
        RecordConstructorArgs.__init__(self, **arguments)
        super().__init__(env)
        if isinstance(env.observation_space, Messages):
            raise SettingError(
                f"{type(self).__name__} needs an environment whose observations are text; {env} returns messages. "
                "Make it with observation='text', and wrap it in one context only."
            )
        self.observation_space = Messages()
        self._opening, self._system = "", ""

    @abstractmethod
    def forget(self) -> None:
        """Start a new episode."""

    @abstractmethod
    def keep(self, exchange: Exchange) -> None:
        """Take in one step: what the model said and what it saw then."""

    @abstractmethod
    def past(self, opening: str) -> list[Message]:
        """The messages from the opening on, without the system message."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; the past is empty. The system text is read here, since a task may change it."""
        observation, info = self.env.reset(seed=seed, options=options)
        if not isinstance(observation, str):
            self._refuse(observation)
        self._opening = observation
        try:
            self._system = str(self.env.get_wrapper_attr("system_prompt"))
        except AttributeError:  # a stranger's environment has none
            self._system = ""
        self.forget()
        return self._observe(), info

    def step(self, action: str) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment, and show what is kept."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not isinstance(observation, str):
            self._refuse(observation)
        self.keep(Exchange(action, observation))
        return self._observe(), reward, terminated, truncated, info

    def _refuse(self, observation: Any) -> NoReturn:
        raise SettingError(
            f"{type(self).__name__} needs observations that are text; {self.env} returned a "
            f"{type(observation).__name__}."
        )

    def _observe(self) -> tuple[Message, ...]:
        past = self.past(self._opening)
        return ({"role": "system", "content": self._system}, *past) if self._system else tuple(past)


class AppendContext(Context):
    """Everything: each step adds what was said and what was seen."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Wrap an environment; see `Context`."""
        super().__init__(env)
        self._steps: list[Exchange] = []

    def forget(self) -> None:
        """Start a new episode."""
        self._steps = []

    def keep(self, exchange: Exchange) -> None:
        """Keep every step."""
        self._steps.append(exchange)

    def past(self, opening: str) -> list[Message]:
        """The opening and every step."""
        return [_user(opening), *_told(self._steps)]


class WindowContext(Context):
    """The opening and the last `steps` steps: a ring buffer."""

    def __init__(self, env: gymnasium.Env[Any, Any], steps: int) -> None:
        """Wrap an environment; 0 steps keep the opening alone.

        Raises:
            SettingError: `steps` is negative.
        """
        super().__init__(env, steps=steps)
        self._steps: deque[Exchange] = deque(maxlen=_count("steps", steps, 0))

    def forget(self) -> None:
        """Start a new episode."""
        self._steps.clear()

    def keep(self, exchange: Exchange) -> None:
        """Keep the step; the oldest leaves."""
        self._steps.append(exchange)

    def past(self, opening: str) -> list[Message]:
        """The opening and the steps in the window."""
        return [_user(opening), *_told(self._steps)]


class FirstAndLastContext(Context):
    """The opening, the `first` steps and the `last` steps; a note says how many lie between."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        first: int = 1,
        last: int = 2,
        note: str = "[{count} steps left out]",
    ) -> None:
        """Wrap an environment.

        Args:
            env: see `Context`.
            first: steps kept from the start.
            last: steps kept at the end.
            note: written behind what was seen before the gap; "{count}" is how many steps it holds, "" says nothing.

        Raises:
            SettingError: a number is negative, or `last` is 0 (the model would not see what it just did).
        """
        super().__init__(env, first=first, last=last, note=note)
        self._first = _count("first", first, 0)
        self._note = note
        self._head: list[Exchange] = []
        self._tail: deque[Exchange] = deque(maxlen=_count("last", last, 1))
        self._left_out = 0

    def forget(self) -> None:
        """Start a new episode."""
        self._head, self._left_out = [], 0
        self._tail.clear()

    def keep(self, exchange: Exchange) -> None:
        """Keep the step among the first, or else among the last."""
        if len(self._head) < self._first:
            self._head.append(exchange)
            return
        self._left_out += len(self._tail) == self._tail.maxlen
        self._tail.append(exchange)

    def past(self, opening: str) -> list[Message]:
        """The opening, the first steps, the note, the last steps."""
        messages = [_user(opening), *_told(self._head)]
        if self._left_out and self._note:
            note = self._note.format(count=self._left_out)
            messages[-1] = _user(f"{messages[-1]['content']}\n\n{note}")
        return [*messages, *_told(self._tail)]


class SummaryContext(Context):
    """The opening with a summary of older steps behind it, and the last `steps` steps as they were."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        summarise: Summarise,
        steps: int = 2,
        heading: str = "Summary of what was done before:",
    ) -> None:
        """Wrap an environment.

        Args:
            env: see `Context`.
            summarise: called once for each step that leaves the conversation, with the summary so far.
            steps: steps kept as they were.
            heading: written before the summary.

        Raises:
            SettingError: `steps` is negative.
        """
        super().__init__(env, summarise=summarise, steps=steps, heading=heading)
        self._summarise, self._size, self._heading = summarise, _count("steps", steps, 0), heading
        self._steps: deque[Exchange] = deque()
        self._summary = ""

    def forget(self) -> None:
        """Start a new episode."""
        self._summary = ""
        self._steps.clear()

    def keep(self, exchange: Exchange) -> None:
        """Keep the step; the oldest goes into the summary."""
        self._steps.append(exchange)
        while len(self._steps) > self._size:
            self._summary = self._summarise(self._summary, self._steps.popleft())

    def past(self, opening: str) -> list[Message]:
        """The opening with the summary, and the last steps."""
        start = f"{opening}\n\n{self._heading}\n{self._summary}" if self._summary else opening
        return [_user(start), *_told(self._steps)]


class MarkovContext(Context):
    """One message: the state, written anew at each step. The model sees nothing of what it said before."""

    def __init__(self, env: gymnasium.Env[Any, Any], state: StateText | None = None) -> None:
        """Wrap an environment.

        Args:
            env: see `Context`.
            state: writes the state from the opening and all past steps; None shows the newest observation, for
                environments whose observation is the whole state.
        """
        super().__init__(env, state=state)
        self._state: StateText = _newest if state is None else state
        self._steps: deque[Exchange] = deque(maxlen=1 if state is None else None)

    def forget(self) -> None:
        """Start a new episode."""
        self._steps.clear()

    def keep(self, exchange: Exchange) -> None:
        """Keep the step for the state; without a function the newest is enough."""
        self._steps.append(exchange)

    def past(self, opening: str) -> list[Message]:
        """The state."""
        return [_user(self._state(opening, tuple(self._steps)))]


def _newest(opening: str, steps: Sequence[Exchange]) -> str:
    return steps[-1].feedback if steps else opening


def _count(name: str, given: int, least: int) -> int:
    if given < least:
        raise SettingError(f"{name}={given} must be at least {least}.")
    return given


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _told(steps: Sequence[Exchange]) -> list[Message]:
    messages: list[Message] = []
    for step in steps:
        messages.append({"role": "assistant", "content": step.action})
        messages.append({"role": "user", "content": step.feedback})
    return messages
