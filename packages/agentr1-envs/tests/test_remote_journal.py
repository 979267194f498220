from typing import Any

import numpy as np
import pytest
import served_toys

pytest.importorskip("websockets", reason="the extra remote is not installed")
from agentr1_envs.errors import ReplayError
from agentr1_envs.remote.journal import Journal
from agentr1_envs.serving.calls import answer
from agentr1_envs.wire import dumps, loads


class Here:
    """A session of this process."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.asked: list[dict[str, Any]] = []

    def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(asked)
        return loads(answer(self.env, {"number": 1, **loads(dumps(asked))}))


def played(*calls: dict[str, Any]) -> tuple[Journal, Here]:
    journal, session = Journal(), Here(served_toys.Stranger())
    for asked in calls:
        journal.note(asked, session.ask(asked))
    return journal, session


RESET = {"do": "reset", "seed": 2, "options": {"a": (1,)}}
FURTHER = {"do": "reset", "seed": None, "options": None}
GO = {"do": "step", "action": "go"}
BAD = {"do": "step", "action": "key x"}


@pytest.mark.parametrize(
    "calls",
    [
        (RESET, GO, GO),
        (RESET, GO, BAD, GO),
        (RESET, GO, FURTHER, GO),
        (FURTHER, GO, GO),
        (RESET, GO, {"do": "set_state", "state": {"count": 5}}, GO),
    ],
    ids=["seeded", "with an error", "second episode", "no seed", "state set"],
)
def test_an_episode_goes_on_where_it_was(calls: tuple[dict[str, Any], ...]) -> None:
    journal, first = played(*calls)
    second = Here(served_toys.Stranger())
    journal.replay(second)  # type: ignore[arg-type]
    assert dumps(first.ask(GO)) == dumps(second.ask(GO))


def test_only_what_changes_the_episode_is_kept_and_a_reset_forgets() -> None:
    journal, _ = played(RESET, GO, GO, {"do": "render"}, {"do": "get", "name": "stop"})
    assert len(journal) == 3
    journal, _ = played(RESET, GO, RESET)
    assert len(journal) == 1
    journal.clear()
    assert len(journal) == 0


def test_what_the_caller_does_with_its_values_changes_nothing() -> None:
    journal, session = Journal(), Here(served_toys.Stranger())
    asked = {"do": "reset", "seed": 2, "options": {"a": 1}}
    told = session.ask(asked)
    journal.note(asked, told)
    asked["options"]["a"] = 2  # type: ignore[index]
    told["result"]["info"].clear()
    journal.replay(Here(served_toys.Stranger()))  # type: ignore[arg-type]


def test_another_course_is_an_error_that_names_it() -> None:
    journal, _ = played(RESET, GO)
    with pytest.raises(ReplayError, match=r'call 0 \(reset\) .*observation was "hello \d+" and is "goodbye \d+"'):
        journal.replay(Here(served_toys.Stranger(greeting="goodbye")))  # type: ignore[arg-type]

    class Rounder(served_toys.Stranger):
        def _info(self, options: Any) -> dict[str, Any]:
            return {**super()._info(options), "share": np.float32(0.1) if self._count == 0 else np.float64(0.1)}

    with pytest.raises(ReplayError, match=r"call 1 \(step\) .*Its info was .*reset\(\)"):
        journal.replay(Here(Rounder()))  # type: ignore[arg-type]


def test_an_error_that_does_not_come_again_is_another_course() -> None:
    journal, _ = played(RESET, BAD)

    class Mended(served_toys.Stranger):
        def step(self, action: str) -> Any:
            return super().step("go")

    with pytest.raises(ReplayError, match=r"observation was missing and is|error was .* and is missing"):
        journal.replay(Here(Mended()))  # type: ignore[arg-type]
