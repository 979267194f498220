"""`AgentEnv`: the base of every task here. A string goes in, a string (or the whole conversation) comes out.

The base draws the task, counts steps, keeps the history, and builds `info` to a fixed schema. A subclass writes two
methods: `begin` (the text that opens a task) and `advance` (one response in, one `Turn` out). Nothing here knows of
tools, models or files.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import gymnasium
from gymnasium.error import InvalidAction, ResetNeeded

from agentr1_envs.errors import InfoSchemaError, SettingError, did_you_mean, require_choice
from agentr1_envs.spaces import Message, Messages, Text
from agentr1_envs.tasks import Task, TaskSet

InfoValue = bool | int | float | str | tuple[str, ...]
ObservationKind = Literal["text", "messages"]
OBSERVATION_KINDS: tuple[ObservationKind, ...] = ("text", "messages")

ANSWERED = "The answer was received; the episode is over."
"""The observation after a final answer; it does not tell whether the answer was right."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a subclass answers to one response of the model."""

    feedback: str
    """What the model sees next; kept as the final observation when the episode ends."""
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Reward by part; the step's reward is their sum."""
    ended: str = ""
    """Why the task is over by its own rules; empty while it goes on."""
    success: bool = False
    info: Mapping[str, InfoValue] = field(default_factory=dict[str, InfoValue])
    """Entries of the declared schema that changed."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One past step: what the model wrote, and what it saw then."""

    action: str
    feedback: str


class AgentEnv(gymnasium.Env[Any, str]):
    """Base of the text environments: one model call is one step.

    Action: the model's whole response, a `str`. Observation: what is new, a `str`; or, with
    ``observation="messages"``, the whole conversation with the system message first.

    ``reset(seed=s)`` draws the task with `np_random`; ``reset(options={"task_id": ...})`` names it.
    ``info`` has the same keys and types at every reset and step: `success`, `task_id`, `end_reason` (empty while the
    episode runs), `steps`, ``reward/<part>`` for each part, and what the subclass declares in `extra_info`.

    A subclass that knows an expert offers ``demonstration() -> list[str]``: the responses that solve the current task,
    one a step.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 (Gymnasium's own form)

    reward_parts: ClassVar[tuple[str, ...]] = ("task",)
    """Names of the reward parts."""
    extra_info: ClassVar[Mapping[str, InfoValue]] = {}
    """Further info entries with their values before the first step; the type of each is fixed by its value."""

    def __init__(
        self,
        tasks: TaskSet | Callable[[], TaskSet],
        *,
        max_steps: int = 1,
        observation: ObservationKind = "text",
        history: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Keep the settings; the tasks are loaded at first use.

        Args:
            tasks: the tasks, or a function that loads them.
            max_steps: steps after which an unfinished episode is truncated.
            observation: "text" (what is new) or "messages" (the whole conversation).
            history: with "messages", how many past steps stay in the conversation; None keeps all.
            render_mode: None or "ansi" (`render` returns the transcript).

        Raises:
            SettingError: a setting is unknown, out of range, or would have no effect.
        """
        require_choice("observation", observation, OBSERVATION_KINDS)
        if max_steps < 1:
            raise SettingError(f"max_steps={max_steps} must be at least 1.")
        if history is not None and (history < 0 or observation != "messages"):
            raise SettingError(
                f"history={history} must be at least 0 and needs observation='messages'; with 'text' the reader of "
                "the observations keeps the conversation."
            )
        if render_mode is not None:
            require_choice("render_mode", render_mode, self.metadata["render_modes"])
        self._task_source = tasks
        self.max_steps, self.observation_kind, self.render_mode = max_steps, observation, render_mode
        self.action_space = Text()
        self.observation_space = Messages() if observation == "messages" else Text()
        self._history: deque[Exchange] = deque(maxlen=history)
        self._transcript: list[Message] = []
        self._task: Task | None = None
        self._opening = ""
        self._steps = 0
        self._over = False
        self._info: dict[str, InfoValue] = {}

    @abstractmethod
    def begin(self, task: Task) -> str:
        """Forget the last episode and return the text that opens this task."""

    @abstractmethod
    def advance(self, action: str) -> Turn:
        """Answer one response of the model."""

    def draw_task(self) -> Task:
        """The task of a reset that names none, drawn with `np_random`: by default each with the same chance."""
        return self.tasks[int(self.np_random.integers(len(self.tasks)))]

    def opening_info(self) -> Mapping[str, InfoValue]:
        """Entries of the declared schema that a task begins with; asked after `begin`."""
        return {}

    @property
    def system_prompt(self) -> str:
        """Text for the system role; it never changes between episodes."""
        return ""

    @property
    def tools_in_template(self) -> bool:
        """True when the tool schemas are left to the chat template and do not stand in `system_prompt`."""
        return False

    @property
    def tool_schemas(self) -> list[dict[str, Any]]:
        """Tools of the task in the OpenAI function format; fresh objects at each access."""
        return []

    @property
    def stop(self) -> list[str]:
        """Texts after which the rest of a response means nothing."""
        return []

    @property
    def training_only(self) -> tuple[str, ...]:
        """Settings in force that make episodes harder on purpose, for training; an evaluation refuses them."""
        return ()

    @cached_property
    def tasks(self) -> TaskSet:
        """The tasks of the split, loaded at first use and shared by the environments of a process."""
        return self._task_source if isinstance(self._task_source, TaskSet) else self._task_source()

    @property
    def task_ids(self) -> tuple[str, ...]:
        """Ids of all tasks of the split, in order."""
        return self.tasks.task_ids

    @property
    def task(self) -> Task:
        """The task being played.

        Raises:
            ResetNeeded: before the first reset.
        """
        if self._task is None:
            raise ResetNeeded(f"{type(self).__name__} plays no task yet: call reset() first.")
        return self._task

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: seeds `np_random`, which draws the task.
            options: ``{"task_id": ...}`` names the task instead.

        Raises:
            UnknownTaskError: no such task. SettingError: an unknown option.
        """
        super().reset(seed=seed)
        options = options or {}
        for name in options:
            if name != "task_id":
                raise SettingError(
                    f"reset option {name!r} is not known; legal: 'task_id'.{did_you_mean(name, ['task_id'])}"
                )
        if "task_id" in options:
            self._task = self.tasks.find(options["task_id"])
        else:
            self._task = self.draw_task()
        self._steps, self._over = 0, True  # over until `begin` has gone well
        self._history.clear()
        self._info = {
            "success": False,
            "task_id": self._task.task_id,
            "end_reason": "",
            "steps": 0,
            **{f"reward/{part}": 0.0 for part in self.reward_parts},
            **self.extra_info,
        }
        self._opening = self.begin(self._task)
        self._enter(self.opening_info())
        self._over = False
        self._transcript = [Message(role="user", content=self._opening)]
        if self.system_prompt:
            self._transcript.insert(0, Message(role="system", content=self.system_prompt))
        return self._observe(self._opening), dict(self._info)

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one response.

        Raises:
            ResetNeeded: before reset, or after the episode ended. InvalidAction: `action` is no string.
        """
        task = self.task
        if self._over:
            raise ResetNeeded(f"The episode of task {task.task_id!r} is over: call reset() before step().")
        if not isinstance(action, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidAction(f"An action is the model's response, a str; got {type(action).__name__}.")
        turn = self.advance(action)
        self._steps += 1
        terminated = bool(turn.ended)
        truncated = not terminated and self._steps >= self.max_steps
        self._over = terminated or truncated
        self._history.append(Exchange(action, turn.feedback))
        self._transcript += [
            Message(role="assistant", content=action),
            Message(role="user", content=turn.feedback),
        ]
        self._update_info(turn, "max_steps" if truncated else turn.ended)
        reward = float(sum(turn.parts.values()))
        return self._observe(turn.feedback), reward, terminated, truncated, dict(self._info)

    def render(self) -> str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The transcript so far with ``render_mode="ansi"``; None without a render mode."""
        if self.render_mode is None:
            return None
        return "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in self._transcript)

    def _update_info(self, turn: Turn, end_reason: str) -> None:
        changed: dict[str, InfoValue] = {
            "success": turn.success and bool(turn.ended),
            "end_reason": end_reason,
            "steps": self._steps,
            **{f"reward/{part}": float(turn.parts.get(part, 0.0)) for part in self.reward_parts},
            **turn.info,
        }
        self._enter(changed)
        if unknown := set(turn.parts) - set(self.reward_parts):
            raise InfoSchemaError(f"{type(self).__name__} paid undeclared reward parts {sorted(unknown)}.")

    def _enter(self, changed: Mapping[str, InfoValue]) -> None:
        for name, value in changed.items():
            if name not in self._info or type(value) is not type(self._info[name]):
                raise InfoSchemaError(
                    f"{type(self).__name__} returned info[{name!r}]={value!r}; declared are "
                    f"{ {key: type(known).__name__ for key, known in self._info.items()} }."
                )
        self._info.update(changed)

    def _observe(self, new_text: str) -> Any:
        if self.observation_kind == "text":
            return new_text
        conversation = [Message(role="user", content=self._opening)]
        if self.system_prompt:
            conversation.insert(0, Message(role="system", content=self.system_prompt))
        for past in self._history:
            conversation += [
                Message(role="assistant", content=past.action),
                Message(role="user", content=past.feedback),
            ]
        return tuple(deepcopy(conversation))
