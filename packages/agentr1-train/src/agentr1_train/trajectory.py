"""The records of a rollout: step, trajectory, group. Frozen, ragged, without a tensor.

A **step** is one model call: what the model saw (``prompt_ids``), what it wrote (``response_ids``) and what the
environment answered (``reward``, ``terminated``, ``truncated``). Token ids are written here once, by the sampler,
and never again: nothing downstream decodes and tokenises.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "prompt_too_long"]
"""Why a response ended: an end token or stop string; the response limit; it was never sampled, no room was left."""

EndReason = Literal["terminated", "env_truncated", "max_steps", "prompt_too_long", "token_budget", "error"]
"""Why a trajectory ended. Only ``terminated`` is the task's own end; the others are cuts, ``error`` a fault."""


@dataclass(frozen=True, slots=True)
class Step:
    """One model call and the environment's answer to it."""

    prompt_ids: tuple[int, ...]
    """Everything the model saw. Length P, at least 1."""
    response_ids: tuple[int, ...]
    """Exactly what was sampled, a sampled end token included. Length L, may be 0."""
    response_logprobs: tuple[float, ...]
    """Log-probability of each response id under the distribution it was sampled from. Length L, nats."""
    observation: str
    """The newest observation text, not the history."""
    action: str
    """The decoded response that the environment received."""
    reward: float
    terminated: bool
    truncated: bool
    finish_reason: FinishReason
    state_key: str
    """Hash of the newest observation, or ``info["state_key"]``."""
    reward_parts: Mapping[str, float] = field(default_factory=dict)
    """``info["reward/<part>"]`` without the prefix."""
    policy_version: int = 0
    """Number of weight syncs the sampler had seen."""
    sample_s: float = 0.0
    """Seconds spent waiting for the sampler."""
    env_s: float = 0.0
    """Seconds spent in ``env.step``."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode: steps in order, and how it ended."""

    steps: tuple[Step, ...]
    env_id: str
    task_id: str
    seed: int
    group: int
    """Global index of the group in its update."""
    member: int
    """Index inside the group, 0 <= member < G."""
    success: bool
    end_reason: EndReason
    final_observation: str
    final_prompt_ids: tuple[int, ...] = ()
    """The prompt that would have followed, rendered when the trajectory was truncated: the critic bootstraps on it."""
    error: str | None = None
    """What failed, when ``end_reason`` is ``error``: ``reset: TimeoutError: ...``."""
    origin: int | None = None
    """The member that this one branched off; ``None``: it began with the episode."""
    shared_steps: int = 0
    """Its first steps that are those of ``origin``: played once, though they stand in both."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Numbers of the last ``info`` (``em``, ``f1``, ``tool_calls`` ...) for evaluation."""

    @property
    def rewards(self) -> tuple[float, ...]:
        return tuple(step.reward for step in self.steps)

    @property
    def total_reward(self) -> float:
        return sum(self.rewards)

    @property
    def truncated(self) -> bool:
        """True when something other than the task ended the episode."""
        return self.end_reason != "terminated"


@dataclass(frozen=True, slots=True)
class TrajectoryGroup:
    """The trajectories of one seed."""

    index: int
    """Global index in the update: seed ``index`` of P."""
    seed: int
    trajectories: tuple[Trajectory, ...]
