"""Agent flows: how an episode becomes trajectories. ``AgentEnvLoop`` is the one for any Gymnasium text environment.

A flow owns prompts, model calls and the assembly of steps. It never fails for what an environment does: an exception, a
time-out or a reward that is no number ends the trajectory as ``error``, with the reason, and the other episodes go on.
What the model's side raises (a chat template that cannot render, a sampler without memory) stops the run.
"""

import dataclasses
import hashlib
import math
import numbers
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentr1_train.config import RolloutConfig
from agentr1_train.env_pool import TextEnv
from agentr1_train.renderer import Conversation, Observation, Renderer, newest_text
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.sampler.batching import BatchingSampler
from agentr1_train.trajectory import EndReason, Step, Trajectory

_REWARD_PREFIX = "reward/"


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode to be played: everything a flow needs."""

    env: TextEnv
    """Lent for this episode; not reset yet."""
    sampler: BatchingSampler
    """``await episode.sampler.sample(prompt, params)``; may be called for several branches at once."""
    seed: int
    options: Mapping[str, Any] | None
    """Handed to ``reset``, such as ``{"task_id": ...}``."""
    group: int
    member: int
    key: tuple[int, ...]
    """Seeds this episode's noise. A prompt's key is this and the step, ``(*key, t)``; a branch adds its own number."""


class AgentFlow(Protocol):
    """Plays episodes. Write one when your agent fits no environment loop (several prompts a step, branches, roles)."""

    async def run(self, episode: Episode) -> list[Trajectory]:
        """Play one episode; return its trajectory, or several when it branches."""
        ...


class BadAnswerError(Exception):
    """What an environment returned cannot be used: it becomes the trajectory's error."""


@dataclass(slots=True)
class _Run:
    """What grows while one episode is played."""

    episode: Episode
    steps: list[Step] = field(default_factory=list)
    info: Mapping[str, Any] = field(default_factory=dict)
    observation: str = ""
    """Newest observation text."""

    @property
    def tokens(self) -> int:
        return sum(len(step.response_ids) for step in self.steps)


class AgentEnvLoop:
    """Joins renderer, sampler and environment: observe, sample, step, until the episode ends or a limit cuts it."""

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
        run = _Run(episode)
        try:
            observation, info = _check_reset(await episode.env.reset(episode.seed, episode.options))
            run.info, run.observation = info, newest_text(observation)
            attributes = episode.env.attributes
        except Exception as error:
            return [_finish(run, "error", error=_reason("reset", error))]
        conversation = self._renderer.start(
            observation,
            system_prompt=attributes.system_prompt,
            tool_schemas=attributes.tool_schemas,
            tools_in_template=attributes.tools_in_template,
        )
        params = SamplingParams(
            self._settings.temperature, self._settings.top_p, attributes.stop, self._renderer.end_ids
        )
        while True:
            cut = self._limit(run, conversation)
            if cut is not None:
                return [_finish(run, cut, final_prompt_ids=self._bounded(conversation))]
            try:
                step, conversation = await self._step(run, conversation, params)
            except _StepFailed as failed:
                run.steps.append(failed.step)
                return [_finish(run, "error", error=_reason(f"step {len(run.steps) - 1}", failed.cause))]
            run.steps.append(step)
            if step.terminated:
                return [_finish(run, "terminated")]
            if step.truncated:
                return [_finish(run, "env_truncated", final_prompt_ids=self._bounded(conversation))]

    async def _step(self, run: _Run, conversation: Conversation, params: SamplingParams) -> tuple[Step, Conversation]:
        """Sample one response, play it, and return the step with the conversation that follows."""
        prompt = Prompt(conversation.prompt_ids, (*run.episode.key, len(run.steps)), self._budget(run))
        version = run.episode.sampler.policy_version
        started = time.perf_counter()
        completion = await run.episode.sampler.sample(prompt, params)
        sampled = time.perf_counter()
        step = _unanswered(run, conversation, completion, self._renderer.decode(completion.ids))
        step = dataclasses.replace(step, policy_version=version, sample_s=sampled - started)
        try:
            answer = await run.episode.env.step(step.action)
            observation, reward, terminated, truncated, info = _check_step(answer)
            parts = _reward_parts(info)
        except Exception as error:
            raise _StepFailed(dataclasses.replace(step, env_s=time.perf_counter() - sampled), error) from error
        step = dataclasses.replace(
            step,
            reward=reward,
            terminated=terminated,
            truncated=truncated and not terminated,
            reward_parts=parts,
            env_s=time.perf_counter() - sampled,
        )
        run.info, run.observation = info, newest_text(observation)
        if not terminated:  # nothing follows a terminated step: its prompt is not rendered
            conversation = self._renderer.extend(conversation, completion.ids, step.action, observation)
        return step, conversation

    def _limit(self, run: _Run, conversation: Conversation) -> EndReason | None:
        """Return the limit that forbids another model call."""
        settings = self._settings
        if settings.max_steps and len(run.steps) >= settings.max_steps:
            return "max_steps"
        if settings.max_trajectory_tokens and run.tokens >= settings.max_trajectory_tokens:
            return "token_budget"
        if len(conversation.prompt_ids) > settings.max_prompt_tokens:
            return "prompt_too_long"
        return None

    def _budget(self, run: _Run) -> int:
        if not self._settings.max_trajectory_tokens:
            return self._settings.max_response_tokens
        return min(self._settings.max_response_tokens, self._settings.max_trajectory_tokens - run.tokens)

    def _bounded(self, conversation: Conversation) -> tuple[int, ...]:
        """Return the prompt that would have followed, unless it is longer than any row the trainer ever sees."""
        longest = self._settings.max_prompt_tokens + self._settings.max_response_tokens
        return conversation.prompt_ids if len(conversation.prompt_ids) <= longest else ()


class _StepFailed(Exception):
    """The environment failed after a response was sampled; the step keeps what was sampled."""

    def __init__(self, step: Step, cause: Exception) -> None:
        super().__init__(str(cause))
        self.step, self.cause = step, cause


def _unanswered(run: _Run, conversation: Conversation, completion: Completion, action: str) -> Step:
    return Step(
        prompt_ids=conversation.prompt_ids,
        response_ids=tuple(completion.ids),
        response_logprobs=tuple(completion.logprobs),
        observation=run.observation,
        action=action,
        reward=0.0,
        terminated=False,
        truncated=True,
        finish_reason=completion.finish_reason,
        state_key=_state_key(run.info, run.observation),
    )


def _finish(
    run: _Run, end_reason: EndReason, *, final_prompt_ids: tuple[int, ...] = (), error: str | None = None
) -> Trajectory:
    episode, steps = run.episode, run.steps
    if steps and end_reason != "terminated":  # a limit of the loop cuts after the step it could not follow
        steps[-1] = dataclasses.replace(steps[-1], truncated=True)
    task = run.info.get("task_id", (episode.options or {}).get("task_id", ""))
    return Trajectory(
        steps=tuple(steps),
        env_id=episode.env.env_id,
        task_id=str(task),
        seed=episode.seed,
        group=episode.group,
        member=episode.member,
        success=end_reason != "error" and _success(run, end_reason),
        end_reason=end_reason,
        final_observation=run.observation,
        final_prompt_ids=final_prompt_ids,
        error=error,
        metrics=_metrics(run.info),
    )


def _success(run: _Run, end_reason: EndReason) -> bool:
    """``info["success"]``; an environment that does not say so succeeded when it terminated with a positive return."""
    reported = run.info.get("success")
    if reported is not None:
        return bool(reported)
    return end_reason == "terminated" and sum(step.reward for step in run.steps) > 0


def _check_reset(answer: Any) -> tuple[Observation, Mapping[str, Any]]:
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise BadAnswerError(f"reset returned {_short(answer)}, not (observation, info)")
    return _observation(answer[0]), _info(answer[1])


def _check_step(answer: Any) -> tuple[Observation, float, bool, bool, Mapping[str, Any]]:
    if not isinstance(answer, tuple) or len(answer) != 5:
        raise BadAnswerError(f"step returned {_short(answer)}, not (observation, reward, terminated, truncated, info)")
    observation, reward, terminated, truncated, info = answer
    if not isinstance(reward, numbers.Real) or not math.isfinite(reward):
        raise BadAnswerError(f"the reward is {_short(reward)}; a finite number is needed")
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


def _reward_parts(info: Mapping[str, Any]) -> dict[str, float]:
    """Return ``info["reward/<part>"]``. Raises ``BadAnswerError`` for a part that is no finite number."""
    parts = {}
    for name, value in info.items():
        if name.startswith(_REWARD_PREFIX):
            if not isinstance(value, numbers.Real) or not math.isfinite(value):
                raise BadAnswerError(f"info[{name!r}] is {_short(value)}; a finite number is needed")
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


def _reason(where: str, error: BaseException) -> str:
    """Say where and what; ``BadAnswerError`` says it alone."""
    if isinstance(error, BadAnswerError):
        return f"{where}: {error}"
    return f"{where}: {type(error).__name__}: {error}"


def _short(value: Any) -> str:
    text = repr(value)
    return f"{text[:80]}{'...' if len(text) > 80 else ''} ({type(value).__name__})"
