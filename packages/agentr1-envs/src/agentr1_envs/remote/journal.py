"""Journal: what an episode was asked and answered, so that it can be played again in another session, and compared."""

from collections.abc import Mapping
from typing import Any

from agentr1_envs.errors import ReplayError
from agentr1_envs.remote.session import RemoteSession
from agentr1_envs.wire import dumps, loads

_CHANGES = ("reset", "step", "set_state")


class Journal:
    """The calls since the last reset that change an environment, each with its answer."""

    def __init__(self) -> None:
        self._entries: list[tuple[dict[str, Any], dict[str, str]]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Forget the episode."""
        self._entries.clear()

    def note(self, asked: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Keep a call; a reset that went well forgets what was before."""
        if asked["do"] not in _CHANGES:
            return
        if asked["do"] == "reset" and "result" in answer:
            self._entries.clear()
            asked = {**asked, "rng": answer["result"].get("rng")}  # where an unseeded one began
        self._entries.append((loads(dumps(asked)), _compared(answer)))  # a copy: the caller may change what it gave

    def replay(self, session: RemoteSession) -> None:
        """Play the episode in a new session.

        Raises:
            ReplayError: something was answered that was not answered then. SessionLostError, RemoteError: of `session`.
        """
        for place, (asked, then) in enumerate(self._entries):
            now = _compared(session.ask(asked))
            if now != then:
                raise ReplayError(
                    f"The episode was lost with its session and cannot be taken up: played again, call {place} "
                    f"({asked['do']}) gave another answer. {_difference(then, now)} To begin another, call reset()."
                )


def _compared(answer: Mapping[str, Any]) -> dict[str, str]:
    """The parts of an answer as text: equal where they are the same to the bit, and out of the caller's reach."""
    if "error" in answer:
        return {"error": str(answer["error"].get("text"))}
    return {name: dumps(value) for name, value in answer["result"].items() if name != "rng"}


def _difference(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    name = next(name for name in (*then, *now) if then.get(name) != now.get(name))
    return f"Its {name} was {_short(then.get(name))} and is {_short(now.get(name))}."


def _short(text: str | None) -> str:
    return "missing" if text is None else text if len(text) <= 80 else f"{text[:77]}..."
