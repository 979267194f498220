"""Rewards for what happens before the final answer: tool results and hops.

Pure functions on calls, results and counts. The final answer's reward belongs to the task, not to this file.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol

from agentr1_envs.errors import SettingError, did_you_mean

Progressive = Literal["off", "levels", "increments"]
PROGRESSIVE: tuple[Progressive, ...] = ("off", "levels", "increments")

HOP_LEVELS = (0.1, 0.3, 0.6)
"""What an episode is worth after its first, second and third hop; further hops stay at the last level."""

SUCCESS_LEVEL = 1.0


class CallLike(Protocol):
    """A tool call: its name and arguments."""

    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> dict[str, Any]: ...


class ResultLike(Protocol):
    """A tool result: whether it succeeded, and its data."""

    @property
    def ok(self) -> bool: ...
    @property
    def data(self) -> Any: ...


ProcessReward = Callable[[Any, Any], float]
"""``(call, result) -> float``, asked once for each call that could be read."""


def reward_success(call: CallLike, result: ResultLike) -> float:
    """0.1 for each call that succeeded."""
    return 0.1 if result.ok else 0.0


def reward_found(call: CallLike, result: ResultLike) -> float:
    """0.2 for each call that succeeded with non-empty data."""
    return 0.2 if result.ok and bool(result.data) else 0.0


PROCESS_REWARDS: dict[str, ProcessReward] = {"success": reward_success, "found": reward_found}
"""The examples that can be named in a recipe."""


def resolve_process_reward(given: str | ProcessReward | None) -> ProcessReward | None:
    """A callable as it is, a name of :data:`PROCESS_REWARDS` looked up, None passed through.

    Raises:
        SettingError: an unknown name.
    """
    if not isinstance(given, str):
        return given
    if given not in PROCESS_REWARDS:
        raise SettingError(
            f"process_reward={given!r} is not known; legal: {', '.join(PROCESS_REWARDS)}, or a function "
            f"(call, result) -> float.{did_you_mean(given, PROCESS_REWARDS)}"
        )
    return PROCESS_REWARDS[given]


def bounded(reward: float, ok: bool, limits: tuple[float, float] | None) -> float:
    """A process reward as it is paid: a failed call never earns, a positive one is clipped to `limits`.

    Raises:
        SettingError: the reward is not a finite number.
    """
    if not float("-inf") < reward < float("inf"):
        raise SettingError(f"process_reward returned {reward!r}; it must return a finite number.")
    if reward <= 0.0:
        return float(reward)
    if not ok:
        return 0.0
    return float(reward) if limits is None else min(max(float(reward), limits[0]), limits[1])


def hop_reward(progressive: Progressive, found_before: int, found_now: int, per_hop: float) -> float:
    """What the hops of one step pay.

    With "levels" hop k pays 0.1, 0.3, 0.6; with "increments" it pays the difference to the level before, so that a
    perfect episode sums to 1.0. `per_hop` comes on top, once a hop.
    """
    hops = range(found_before + 1, found_now + 1)
    paid = per_hop * len(hops)
    if progressive == "levels":
        paid += sum(_level(k) for k in hops)
    elif progressive == "increments":
        paid += sum(_level(k) - _level(k - 1) for k in hops)
    return paid


def success_reward(progressive: Progressive, score: float, hops_found: int) -> float:
    """What the final answer pays: its score, less what "increments" has paid already, if it scored at all."""
    if progressive == "increments" and score > 0.0:
        return max(score * SUCCESS_LEVEL - _level(hops_found), 0.0)
    return score


def _level(hops: int) -> float:
    return HOP_LEVELS[min(hops, len(HOP_LEVELS)) - 1] if hops > 0 else 0.0
