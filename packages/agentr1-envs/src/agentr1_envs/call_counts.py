"""What the calls of an episode add up to: counts for `info`, and the hops they found. Runs nothing."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from agentr1_envs.agent_env import InfoValue
from agentr1_envs.copied_env import CopiedEnv

NOT_VALID = ("PARSE_ERROR", "UNKNOWN_TOOL", "INVALID_ARGUMENT")
"""Codes of calls that reached no tool since the model wrote them wrongly."""

CALL_INFO: Mapping[str, InfoValue] = {
    "tool_calls": 0,
    "tool_errors": 0,
    "injected_errors": 0,
    "invalid_calls": 0,
    "invalid_steps": 0,
    "hops_found": 0,
    "error_codes": (),
    "prediction": "",
}
"""What every environment with tools reports, before the first step."""


class CountedResult(Protocol):
    """What is counted of a tool's result."""

    @property
    def ok(self) -> bool: ...
    @property
    def error(self) -> str | None: ...
    @property
    def metrics(self) -> Mapping[str, Any]: ...


class AnsweringResult(Protocol):
    """What is read of the result of `finish`."""

    @property
    def ok(self) -> bool: ...
    @property
    def data(self) -> Any: ...
    @property
    def source(self) -> str: ...


class CallCounts:
    """What one episode has used and found so far."""

    def __init__(self) -> None:
        self.calls = self.errors = self.injected = self.invalid_calls = 0
        self.invalid_steps = self.invalid_in_a_row = 0
        self.seconds = 0.0
        self.hops: set[str] = set()
        """Gold supporting titles that a result has shown."""

    def add(self, results: Sequence[CountedResult]) -> bool:
        """Count one step's results; true when the step was invalid: every call was written wrongly."""
        invalid = all(result.error in NOT_VALID for result in results)
        self.calls += len(results)
        self.errors += sum(not result.ok for result in results)
        self.injected += sum(bool(result.metrics.get("injected")) for result in results)
        self.invalid_calls += sum(result.error in NOT_VALID for result in results)
        self.invalid_steps += invalid
        self.invalid_in_a_row = self.invalid_in_a_row + 1 if invalid else 0
        return invalid

    def get_state(self) -> dict[str, Any]:
        """The counts as JSON-ready data."""
        return {**vars(self), "hops": sorted(self.hops)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `get_state` gave."""
        for name, value in {**state, "hops": set(state["hops"])}.items():
            setattr(self, name, value)

    def info(self, results: Sequence[CountedResult]) -> dict[str, InfoValue]:
        """The entries of `info` after a step with these results."""
        return {
            "tool_calls": self.calls,
            "tool_errors": self.errors,
            "injected_errors": self.injected,
            "invalid_calls": self.invalid_calls,
            "invalid_steps": self.invalid_steps,
            "hops_found": len(self.hops),
            "error_codes": tuple(str(result.error) for result in results if result.error is not None),
        }


class CountedEnv(CopiedEnv):
    """An environment that counts calls, and copies the counts with the episode."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        """Take the settings of `AgentEnv`."""
        super().__init__(*args, **settings)
        self._counts = CallCounts()
        self._injected_seed: int | None = None
        """Of the calls that fail on purpose; None where none does."""

    def own_state(self) -> dict[str, Any]:
        """The counts, and which calls fail on purpose."""
        return {**super().own_state(), "counts": self._counts.get_state(), "injected_seed": self._injected_seed}

    def take_own_state(self, state: dict[str, Any]) -> None:
        """Take them up."""
        super().take_own_state(state)
        self._counts.set_state(state["counts"])
        self._injected_seed = state["injected_seed"]


def finished(result: AnsweringResult) -> str | None:
    """The answer in a result of the tool `finish`; None in any other result, and when the call failed."""
    data: Any = result.data
    answer = cast("dict[str, Any]", data).get("answer") if isinstance(data, dict) else None
    return answer if result.source == "finish" and result.ok and isinstance(answer, str) else None


def titles_in(data: Any) -> list[str]:
    """Titles in a tool's data, which is one ``{"title": ...}`` or a list of them."""
    entries = cast("list[Any]", data) if isinstance(data, list) else [data]
    titles = [cast("dict[str, Any]", entry).get("title") for entry in entries if isinstance(entry, dict)]
    return [title for title in titles if isinstance(title, str)]
