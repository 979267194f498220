"""The settings of `ToolEnv`, checked as they are read. Nothing here runs a tool."""

from dataclasses import dataclass, fields
from typing import Any

from agentr1_envs.errors import SettingError, refuse_unknown, require_choice
from agentr1_envs.prompts import check_style
from agentr1_envs.rewards import PROGRESSIVE, ProcessReward, Progressive


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """How an episode with tools runs and what it pays."""

    format: str = "hermes"
    """How calls are written: a format of agentr1_tools."""
    system: str = "full"
    """System text: "full", "short" (for models with little room), "none", or a text of your own with blanks in it."""
    tools_in_template: bool = False
    """True leaves the tool schemas to the chat template; the system text then only speaks of the answer."""
    max_steps: int = 8
    """Responses after which an unanswered episode is truncated."""
    max_calls_per_step: int = 8
    """Calls of one response that are run; the others come back as errors."""
    tool_timeout: float | None = None
    """Seconds a call may take, in place of the limits the named tools declare; None keeps those."""
    tool_seconds_per_episode: float = 60.0
    """Seconds all calls of an episode may take together; after that, calls come back as errors."""
    max_invalid: int = 3
    """Steps in a row, each with calls of which none was valid, that end the episode."""
    max_result_chars: int = 4000
    """Longer results are cut in the middle, and say so."""
    process_reward: str | ProcessReward | None = None
    """Reward of one call: a name of `rewards.PROCESS_REWARDS`, or a function (call, result) -> float."""
    process_reward_range: tuple[float, float] | None = (0.1, 0.3)
    """What a positive process reward is clipped to; None leaves it as it is."""
    progressive: Progressive = "off"
    """What hops pay: "off", "levels" (0.1, 0.3, 0.6) or "increments" (a perfect episode then sums to 1.0)."""
    per_hop: float = 0.0
    """Paid for each hop on top."""
    format_reward: float = 0.0
    """Paid once for a final answer that stands in its tag."""
    invalid_penalty: float = 0.0
    """Taken for each invalid step."""
    inject_errors: float = 0.0
    """Probability that a call of a tool fails on purpose; for training only, an evaluation refuses it."""

    def __post_init__(self) -> None:
        """Raises SettingError for a value out of range."""
        require_choice("progressive", self.progressive, PROGRESSIVE)
        for name in ("max_steps", "max_calls_per_step", "max_invalid", "max_result_chars"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name}={getattr(self, name)!r} must be at least 1.")
        for name in ("per_hop", "format_reward", "invalid_penalty"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise SettingError(f"{name}={getattr(self, name)!r} must be 0 or more.")
        if not 0.0 <= self.inject_errors <= 1.0:
            raise SettingError(f"inject_errors={self.inject_errors!r} must be a probability, 0 to 1.")
        for name in ("tool_timeout", "tool_seconds_per_episode"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise SettingError(f"{name}={getattr(self, name)!r} must be above 0.")
        if (limits := self.process_reward_range) is not None and not 0.0 < limits[0] <= limits[1]:
            raise SettingError(
                f"process_reward_range={limits!r}: needs two positive numbers, the smaller first, or None."
            )
        check_style(self.system)


def read_settings(given: dict[str, Any], **defaults: Any) -> ToolSettings:
    """Settings out of keyword arguments, over `defaults`.

    Raises:
        SettingError: an unknown name (with the nearest one), or a value out of range.
    """
    refuse_unknown("a task with tools", given, (field.name for field in fields(ToolSettings)))
    chosen = {**defaults, **given}
    if isinstance(chosen.get("process_reward_range"), list):  # as TOML and JSON write it
        chosen["process_reward_range"] = tuple(chosen["process_reward_range"])
    return ToolSettings(**chosen)
