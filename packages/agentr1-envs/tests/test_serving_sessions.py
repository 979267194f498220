import asyncio
from typing import Any

import pytest
import served_toys
from agentr1_envs.errors import RemoteError, SessionLostError
from agentr1_envs.serving.limits import ServingLimits
from agentr1_envs.serving.sessions import Sessions


def sessions(closed: list[int], **limits: Any) -> Sessions:
    class Counted(served_toys.Stranger):
        def close(self) -> None:
            closed.append(1)

    return Sessions(lambda mode: Counted(), ServingLimits(**limits), {})


async def test_one_too_many_is_refused_until_one_ends() -> None:
    closed: list[int] = []
    opened = sessions(closed, max_sessions=2)
    first, _ = await opened.open(None)
    await opened.open(None)
    with pytest.raises(RemoteError, match=r"has 2 sessions .*--max-sessions"):
        await opened.open(None)
    await opened.end(first, "its client closed it")
    await opened.open(None)
    assert len(opened) == 2
    assert await opened.close(30) == 0
    assert len(closed) == 3


async def test_who_opens_at_the_same_time_counts() -> None:
    opened = sessions([], max_sessions=3)
    outcomes = await asyncio.gather(*(opened.open(None) for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(outcome, RemoteError) for outcome in outcomes) == 5
    await opened.close(30)


async def test_a_session_is_found_by_its_id_while_it_lasts() -> None:
    opened = sessions([])
    session, _ = await opened.open(None)
    assert opened.find(session.id) is session
    await opened.end(session, "its client closed it")
    await opened.end(session, "twice changes nothing")
    with pytest.raises(SessionLostError, match="is over: its client closed it"):
        opened.find(session.id)
    for unknown in ("x", None, 3):
        with pytest.raises(SessionLostError, match="not known to this server: it has been started anew"):
            opened.find(unknown)


async def test_idle_sessions_end_and_busy_ones_do_not(until_async: Any) -> None:
    closed: list[int] = []
    opened = sessions(closed, idle_seconds=0.3)
    idle, _ = await opened.open(None)
    busy, _ = await opened.open(None)
    await busy.ask({"number": 1, "do": "reset", "seed": 0, "options": None})
    at_work = asyncio.create_task(busy.ask({"number": 2, "do": "step", "action": "sleep 3"}))
    watching = asyncio.create_task(opened.watch())
    await until_async(lambda: bool(closed))
    with pytest.raises(SessionLostError, match=r"nobody asked anything for 0.3 s"):
        opened.find(idle.id)
    assert opened.find(busy.id) is busy
    await at_work
    await until_async(lambda: len(closed) == 2)
    watching.cancel()


async def test_a_session_that_could_not_begin_takes_no_place() -> None:
    def broken(mode: str | None) -> Any:
        raise ValueError("no")

    opened = Sessions(broken, ServingLimits(max_sessions=1), {})
    for _ in range(3):
        session, said = await opened.open(None)
        assert not session.is_open
        assert "no" in said
    assert len(opened) == 0
