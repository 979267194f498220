"""Play episodes with any function and add up what happened. No model, no training."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium

from agentr1_envs.errors import SettingError, require_choice
from agentr1_envs.spaces import Message

View = Literal["observation", "messages"]
VIEWS: tuple[View, ...] = ("observation", "messages")


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One episode: what it was, how it ended, and the last info."""

    task_id: str
    seed: int
    success: bool
    reward: float
    steps: int
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All episodes of an evaluation, and their means."""

    env_id: str
    episodes: tuple[EpisodeRecord, ...]

    @property
    def success(self) -> float:
        """Share of episodes that succeeded."""
        return self._mean([float(episode.success) for episode in self.episodes])

    @property
    def reward(self) -> float:
        """Mean sum of rewards of an episode."""
        return self._mean([episode.reward for episode in self.episodes])

    @property
    def steps(self) -> float:
        """Mean number of steps of an episode."""
        return self._mean([float(episode.steps) for episode in self.episodes])

    @property
    def metrics(self) -> dict[str, float]:
        """`success`, `reward`, `steps`, `truncated`, and the mean of every number in the last infos."""
        names = [
            name
            for name, value in self.episodes[-1].info.items()
            if isinstance(value, int | float) and not name.startswith("reward/")
        ]
        means = {name: self._mean([float(episode.info[name]) for episode in self.episodes]) for name in names}
        truncated = self._mean([float(episode.truncated) for episode in self.episodes])
        return {**means, "success": self.success, "reward": self.reward, "steps": self.steps, "truncated": truncated}

    @staticmethod
    def _mean(values: list[float]) -> float:
        return sum(values) / len(values)


def evaluate(
    env_id: str,
    policy: Callable[[Any], str],
    episodes: int,
    *,
    seed: int = 0,
    view: View = "observation",
    **env_kwargs: Any,
) -> Evaluation:
    """Play `episodes` episodes of an environment with `policy`.

    With as many episodes as there are tasks or more (an environment that lists `task_ids`), each task is played in
    turn; with fewer, the seeds ``seed, seed + 1, ...`` draw them.

    Args:
        env_id: a registered id, or "module:id".
        policy: maps what it sees to the response.
        episodes: how many, at least 1.
        seed: of the first episode.
        view: what the policy sees: "observation", as the environment returns it, or "messages", the conversation so
            far with the system text (what a chat model needs).
        env_kwargs: for `gymnasium.make`.

    Raises:
        SettingError: `episodes` is below 1, an unknown view, or a setting that is for training only.
    """
    require_choice("view", view, VIEWS)
    if episodes < 1:
        raise SettingError(f"episodes={episodes} must be at least 1.")
    env: gymnasium.Env[Any, Any] = gymnasium.make(env_id, **env_kwargs)
    try:
        _refuse_training_only(env, env_id)
        task_ids: tuple[str, ...] = getattr(env.unwrapped, "task_ids", ())
        whole = 0 < len(task_ids) <= episodes
        records: list[EpisodeRecord] = []
        for number in range(episodes):
            options = {"task_id": task_ids[number % len(task_ids)]} if whole else None
            records.append(play(env, policy, seed + number, options, view))
        return Evaluation(env_id, tuple(records))
    finally:
        env.close()


def _refuse_training_only(env: gymnasium.Env[Any, Any], env_id: str) -> None:
    settings: tuple[str, ...] = getattr(env.unwrapped, "training_only", ())
    if settings:
        raise SettingError(f"{', '.join(settings)}: for training only; leave it out to evaluate {env_id}.")


def play(
    env: gymnasium.Env[Any, Any],
    policy: Callable[[Any], str],
    seed: int,
    options: dict[str, Any] | None = None,
    view: View = "observation",
) -> EpisodeRecord:
    """Play one episode to its end."""
    observation, info = env.reset(seed=seed, options=options)
    conversation: list[Message] = _opening(env, observation)
    reward, steps, terminated, truncated = 0.0, 0, False, False
    while not (terminated or truncated):
        action = policy(observation if view == "observation" else tuple(conversation))
        observation, step_reward, terminated, truncated, info = env.step(action)
        reward, steps = reward + float(step_reward), steps + 1
        if isinstance(observation, str):
            conversation += [Message(role="assistant", content=action), Message(role="user", content=observation)]
        else:
            conversation = [*observation]
    return EpisodeRecord(
        task_id=str(info.get("task_id", "")),
        seed=seed,
        success=bool(info.get("success", False)),
        reward=reward,
        steps=steps,
        terminated=bool(terminated),
        truncated=bool(truncated),
        info=info,
    )


def _opening(env: gymnasium.Env[Any, Any], observation: Any) -> list[Message]:
    if not isinstance(observation, str):
        return [*observation]
    system = str(getattr(env.unwrapped, "system_prompt", ""))
    opening = [Message(role="user", content=observation)]
    return [Message(role="system", content=system), *opening] if system else opening
