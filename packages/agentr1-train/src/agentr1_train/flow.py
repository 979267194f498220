"""Agent flows: how an episode becomes trajectories. ``AgentEnvLoop`` is the one for any Gymnasium text environment.

A flow owns prompts, model calls and the assembly of steps. It never fails for what an environment does: an exception, a
time-out or a reward that is no number ends the trajectory as ``error``, with the reason, and the other episodes go on.
What the model's side raises (a chat template that cannot render, a sampler without memory) stops the run. A request
that an endpoint refuses for what it says ends its own trajectory alone.
"""

import dataclasses
import hashlib
import math
import numbers
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentr1_train.config import RolloutConfig
from agentr1_train.env_pool import TextEnv
from agentr1_train.errors import RequestRefusedError
from agentr1_train.renderer import Conversation, Observation, Renderer, newest_text
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.trajectory import EndReason, Step, Trajectory

_REWARD_PREFIX = "reward/"
LARGEST_REWARD = 1e100
"""In size. The squares of larger numbers, which spreads and whitening take, come near to what a float does not hold."""


class EpisodeSampler(Protocol):
    """What a flow sees of the sampler: the rank's ``BatchingSampler``, or what stands for it in another process."""

    @property
    def policy_version(self) -> int: ...
    async def sample(self, prompt: Prompt, params: SamplingParams) -> Completion: ...
    def slot(self) -> AbstractAsyncContextManager[None]: ...
    def rest(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode to be played: everything a flow needs."""

    env: TextEnv
    """Lent for this episode; not reset yet."""
    sampler: EpisodeSampler
    """``await episode.sampler.sample(prompt, params)``; may be called for several branches at once."""
    seed: int
    options: Mapping[str, Any] | None
    """Handed to ``reset``, such as ``{"task_id": ...}``."""
    group: int
    member: int
    key: tuple[int, ...]
    """Seeds this episode's noise. A prompt's key is this and the step, ``(*key, t)``; a branch adds its own path."""
    lend: Callable[[], AbstractAsyncContextManager[TextEnv]] | None = None
    """Lends another environment of the same kind, for a branch; ``None`` where episodes are played one at a time."""


class AgentFlow(Protocol):
    """Plays episodes. Write one when your agent fits no environment loop (several prompts a step, branches, roles)."""

    async def run(self, episode: Episode) -> list[Trajectory]:
        """Play one episode; return its trajectory, or several when it branches."""
        ...


class BadAnswerError(Exception):
    """What an environment returned cannot be used: it becomes the trajectory's error."""


@dataclass(slots=True)
class Play:
    """An episode in progress: what grows while it is played."""

    episode: Episode
    conversation: Conversation | None = None
    """What the model sees next; ``None`` when ``reset`` failed."""
    params: SamplingParams | None = None
    steps: list[Step] = field(default_factory=list)
    info: Mapping[str, Any] = field(default_factory=dict)
    observation: str = ""
    """Newest observation text."""
    path: tuple[int, ...] = ()
    """Where it branched off, and as which branch: appended to the noise keys of its prompts."""
    end_reason: EndReason | None = None
    """``None`` while it goes on."""
    error: str | None = None
    final_prompt_ids: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        """Sampled tokens so far."""
        return sum(len(step.response_ids) for step in self.steps)


class AgentEnvLoop:
    """Joins renderer, sampler and environment: observe, sample, step, until the episode ends or a limit cuts it.

    ``run`` plays a whole episode. A flow of your own may take the same turns one by one: ``begin``, then ``sample`` and
    ``answer`` while the play goes on, then ``finish``.
    """

    def __init__(self, renderer: Renderer, settings: RolloutConfig) -> None:
        """Keep the settings.

        Args:
            renderer: turns observations into prompt ids.
            settings: limits, temperature and top-p of the rollout.
        """
        self._renderer = renderer
        self._settings = settings

    async def run(self, episode: Episode) -> list[Trajectory]:
        """Play one episode; the list holds one trajectory."""
        play = await self.begin(episode)
        while play.end_reason is None:
            step = await self.sample(play)
            if step is not None:
                await self.answer(play, step)
        return [finish(play)]

    async def begin(self, episode: Episode) -> Play:
        """Reset the environment; a failure ends the play."""
        play = Play(episode)
        try:
            observation, info = check_reset(await episode.env.reset(episode.seed, episode.options))
            play.info, play.observation = info, newest_text(observation)
            attributes = episode.env.attributes
        except Exception as error:
            play.end_reason, play.error = "error", failure_reason("reset", error)
            return play
        play.conversation = self._renderer.start(
            observation,
            system_prompt=attributes.system_prompt,
            tool_schemas=attributes.tool_schemas,
            tools_in_template=attributes.tools_in_template,
        )
        play.params = SamplingParams(
            self._settings.temperature, self._settings.top_p, attributes.stop, self._renderer.end_ids
        )
        return play

    async def sample(self, play: Play) -> Step | None:
        """Sample the next response, as a step that the environment has not answered; ``None``: a limit ended the play.

        The step counts nothing until ``answer`` has been given it.
        """
        conversation, params = play.conversation, play.params
        assert conversation is not None
        assert params is not None
        play.end_reason = self._limit(play, conversation)
        if play.end_reason is not None:
            play.final_prompt_ids = self._bounded(conversation)
            return None
        prompt = Prompt(
            conversation.prompt_ids,
            (*play.episode.key, len(play.steps), *play.path),
            self._budget(play),
            conversation.messages,
            conversation.tools,
        )
        version = play.episode.sampler.policy_version
        started = time.perf_counter()
        try:
            completion = await play.episode.sampler.sample(prompt, params)
        except RequestRefusedError as error:
            play.end_reason, play.error = "error", failure_reason(f"step {len(play.steps)}", error)
            return None
        seconds = time.perf_counter() - started
        said = self._renderer.decode(completion.ids) if completion.text is None else completion.text
        step = _unanswered(play, conversation, completion, said)
        return dataclasses.replace(step, policy_version=version, sample_s=seconds)

    async def answer(self, play: Play, step: Step) -> None:
        """Let the environment answer a sampled step, and append it to the play; a failure ends the play."""
        conversation = play.conversation
        assert conversation is not None
        started = time.perf_counter()
        try:
            observation, reward, terminated, truncated, info = check_step(await play.episode.env.step(step.action))
            parts = _reward_parts(info)
        except Exception as error:
            play.steps.append(dataclasses.replace(step, env_s=time.perf_counter() - started))
            play.end_reason, play.error = "error", failure_reason(f"step {len(play.steps) - 1}", error)
            return
        play.steps.append(
            dataclasses.replace(
                step,
                reward=reward,
                terminated=terminated,
                truncated=truncated and not terminated,
                reward_parts=parts,
                env_s=time.perf_counter() - started,
            )
        )
        play.info, play.observation = info, newest_text(observation)
        if terminated:  # nothing follows: its prompt is not rendered
            play.end_reason = "terminated"
            return
        play.conversation = self._renderer.extend(conversation, step.response_ids, step.action, observation)
        if truncated:
            play.end_reason, play.final_prompt_ids = "env_truncated", self._bounded(play.conversation)

    def _limit(self, play: Play, conversation: Conversation) -> EndReason | None:
        """Return the limit that forbids another model call."""
        settings = self._settings
        if settings.max_steps and len(play.steps) >= settings.max_steps:
            return "max_steps"
        if settings.max_trajectory_tokens and play.tokens >= settings.max_trajectory_tokens:
            return "token_budget"
        if len(conversation.prompt_ids) > settings.max_prompt_tokens:
            return "prompt_too_long"
        return None

    def _budget(self, play: Play) -> int:
        if not self._settings.max_trajectory_tokens:
            return self._settings.max_response_tokens
        return min(self._settings.max_response_tokens, self._settings.max_trajectory_tokens - play.tokens)

    def _bounded(self, conversation: Conversation) -> tuple[int, ...]:
        """Return the prompt that would have followed, unless it is longer than any row the trainer ever sees."""
        longest = self._settings.max_prompt_tokens + self._settings.max_response_tokens
        return conversation.prompt_ids if len(conversation.prompt_ids) <= longest else ()


def _unanswered(play: Play, conversation: Conversation, completion: Completion, action: str) -> Step:
    return Step(
        prompt_ids=conversation.prompt_ids,
        response_ids=tuple(completion.ids),
        response_logprobs=tuple(completion.logprobs),
        observation=play.observation,
        action=action,
        reward=0.0,
        terminated=False,
        truncated=True,
        finish_reason=completion.finish_reason,
        state_key=_state_key(play.info, play.observation),
    )


def finish(play: Play) -> Trajectory:
    """Return the record of a play that has ended."""
    episode, steps, end_reason = play.episode, list(play.steps), play.end_reason
    assert end_reason is not None
    if steps and end_reason != "terminated":  # a limit of the loop cuts after the step it could not follow
        steps[-1] = dataclasses.replace(steps[-1], truncated=True)
    task = play.info.get("task_id", (episode.options or {}).get("task_id", ""))
    return Trajectory(
        steps=tuple(steps),
        env_id=episode.env.env_id,
        task_id=str(task),
        seed=episode.seed,
        group=episode.group,
        member=episode.member,
        success=end_reason != "error" and _success(play, end_reason),
        end_reason=end_reason,
        final_observation=play.observation,
        final_prompt_ids=play.final_prompt_ids,
        error=play.error,
        metrics=_metrics(play.info),
    )


def _success(play: Play, end_reason: EndReason) -> bool:
    """``info["success"]``; an environment that does not say so succeeded when it terminated with a positive return."""
    reported = play.info.get("success")
    if reported is not None:
        return bool(reported)
    return end_reason == "terminated" and sum(step.reward for step in play.steps) > 0


def check_reset(answer: Any) -> tuple[Observation, Mapping[str, Any]]:
    """Return what ``reset`` answered. Raises ``BadAnswerError`` where it cannot be used."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise BadAnswerError(f"reset returned {_short(answer)}, not (observation, info)")
    return _observation(answer[0]), _info(answer[1])


def check_step(answer: Any) -> tuple[Observation, float, bool, bool, Mapping[str, Any]]:
    """Return what ``step`` answered. Raises ``BadAnswerError`` where it cannot be used."""
    if not isinstance(answer, tuple) or len(answer) != 5:
        raise BadAnswerError(f"step returned {_short(answer)}, not (observation, reward, terminated, truncated, info)")
    observation, reward, terminated, truncated, info = answer
    _check_number("the reward", reward)
    return _observation(observation), float(reward), bool(terminated), bool(truncated), _info(info)


def _observation(given: Any) -> Observation:
    texts: list[str] = []
    if isinstance(given, str):
        texts = [given]
    elif isinstance(given, Sequence) and given and all(_is_message(item) for item in given):
        texts = [item["content"] for item in given]
    if texts:
        for text in texts:
            text.encode()  # a lone surrogate has no bytes, so it cannot be tokenised either
        return given
    raise BadAnswerError(
        f"the observation is {_short(given)}; a str, or messages ({{'role', 'content'}} dicts, at least one), is needed"
    )


def _is_message(item: Any) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("role"), str) and isinstance(item.get("content"), str)


def _info(given: Any) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return given
    raise BadAnswerError(f"info is {_short(given)}; a dict is needed")


def _check_number(name: str, value: Any) -> None:
    size: Any = abs(value) if isinstance(value, numbers.Real) else math.nan
    if not size < math.inf:
        raise BadAnswerError(f"{name} is {_short(value)}; a finite number is needed")
    if size > LARGEST_REWARD:
        raise BadAnswerError(f"{name} is {_short(value)}; a number of at most {LARGEST_REWARD:g} in size is needed")


def _reward_parts(info: Mapping[str, Any]) -> dict[str, float]:
    """Return ``info["reward/<part>"]``. Raises ``BadAnswerError`` for a part that is no such number."""
    parts = {}
    for name, value in info.items():
        if name.startswith(_REWARD_PREFIX):
            _check_number(f"info[{name!r}]", value)
            parts[name.removeprefix(_REWARD_PREFIX)] = float(value)
    return parts


def _metrics(info: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in info.items()
        if isinstance(value, numbers.Real | bool) and math.isfinite(value) and not name.startswith(_REWARD_PREFIX)
    }


def _state_key(info: Mapping[str, Any], observation: str) -> str:
    given = info.get("state_key")
    return str(given) if given is not None else hashlib.blake2b(observation.encode(), digest_size=8).hexdigest()


def failure_reason(where: str, error: BaseException) -> str:
    """Say where and what; ``BadAnswerError`` says it alone."""
    if isinstance(error, BadAnswerError):
        return f"{where}: {error}"
    return f"{where}: {type(error).__name__}: {error}"


def _short(value: Any) -> str:
    text = repr(value)
    return f"{text[:80]}{'...' if len(text) > 80 else ''} ({type(value).__name__})"
