"""The system texts environments speak, and the texts that end a response."""

from collections.abc import Callable, Sequence
from typing import Protocol

from agentr1_envs.errors import require_choice

SYSTEM_STYLES = ("full", "short", "none")

_ANSWER = "write it between <answer> and </answer>, as short as it can be"


class ToolPromptSettings(Protocol):
    """The settings a tool environment's system text depends on."""

    @property
    def system(self) -> str: ...
    @property
    def tools_in_template(self) -> bool: ...
    @property
    def max_steps(self) -> int: ...


def check_style(system: str) -> str:
    """Return `system` if it is a style, or a text of one's own (more than one word).

    Raises:
        SettingError: one word that is no style.
    """
    return system if len(system.split()) > 1 else require_choice("system", system, SYSTEM_STYLES)


def choose_system(system: str, full: str, short: str) -> str:
    """The system text in a style; a text of one's own stands as it is."""
    check_style(system)
    return {"full": full, "short": short, "none": ""}.get(system, system)


def answer_system(system: str, role: str) -> str:
    """The system text of a task that is answered in one response."""
    return choose_system(system, f"{role} When you know the answer, {_ANSWER}.", "Write <answer>...</answer>.")


def tool_system(
    settings: ToolPromptSettings,
    role: str,
    tool_names: Sequence[str],
    instructions: Callable[[], str],
    closing: str = "",
) -> str:
    """The system text of a task with tools.

    Args:
        settings: style, whether the chat template brings the tools, and the number of responses.
        role: one sentence on what the task is.
        tool_names: for the short style.
        instructions: how to call the tools, with their schemas; asked only when they stand in the text.
        closing: how the task ends, where it does not end with an answer.
    """
    names = ", ".join(tool_names)
    short = f"Call {names}." if closing else f"Call {names} as needed, then write <answer>...</answer>."
    if settings.system != "full":
        return choose_system(settings.system, "", short)
    parts = [role] if settings.tools_in_template else [role, instructions()]
    rules = closing or (
        f"You have at most {settings.max_steps} responses. After a response with calls you see their results and go "
        f"on. When you know the answer, {_ANSWER}, and make no call in that response."
    )
    return "\n\n".join([*parts, rules])


def tool_stops(max_calls_per_step: int, call_end: str, result_start: str) -> list[str]:
    """What ends a response: the answer, a result the model invents and, with one call a step, the call.

    Args:
        max_calls_per_step: calls of one response that are run.
        call_end: the text that closes a call; empty where the format has none.
        result_start: the text a result begins with.
    """
    stops = ["</answer>", result_start]
    return [call_end, *stops] if max_calls_per_step == 1 and call_end else stops
