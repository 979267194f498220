import asyncio
import threading
from typing import Any

import pytest
import served_toys
from agentr1_envs.serving.session import Session
from agentr1_envs.wire import loads


class Gate(served_toys.Stranger):
    """Waits in `step` until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.free, self.closed = 0, threading.Event(), threading.Event()

    def step(self, action: str) -> Any:
        self.free.wait(60)
        self.steps += 1
        return super().step(action)

    def close(self) -> None:
        self.closed.set()


async def opened(env: Gate, seconds: float = 60.0) -> Session:
    session = Session(lambda mode: env, seconds, {"settings": "x"})
    told = loads(await session.open(None))["result"]
    assert (told["session"], told["settings"]) == (session.id, "x")
    assert loads(await session.ask({"number": 1, "do": "reset", "seed": 0, "options": None}))["number"] == 1
    return session


async def test_asked_again_nothing_is_done_twice() -> None:
    env = Gate()
    session = await opened(env)
    step = {"number": 2, "do": "step", "action": "go"}
    first = asyncio.create_task(session.ask(step))
    await asyncio.sleep(0)
    again = asyncio.create_task(session.ask(step))  # as after a connection that broke, while the environment works
    assert session.idle_seconds == 0
    env.free.set()
    assert await first == await again == await session.ask(step)
    assert env.steps == 1
    assert loads(await session.ask({**step, "number": 3}))["result"]["observation"].startswith("go 2 ")
    await session.end("over")


async def test_a_connection_that_is_given_up_stops_nothing() -> None:
    env = Gate()
    session = await opened(env)
    step = {"number": 2, "do": "step", "action": "go"}
    first = asyncio.create_task(session.ask(step))
    await asyncio.sleep(0)
    first.cancel()
    env.free.set()
    assert loads(await session.ask(step))["result"]["observation"].startswith("go 1 ")
    await session.end("over")


@pytest.mark.parametrize("number", [0, 3, -1, None, "2", 1.5])
async def test_numbers_follow_each_other(number: Any) -> None:
    env = Gate()
    session = await opened(env)
    told = loads(await session.ask({"number": number, "do": "step", "action": "go"}))
    assert "does not follow 1" in told["error"]["text"]
    assert env.steps == 0
    await session.end("over")


async def test_a_call_that_takes_too_long_ends_the_session() -> None:
    env = Gate()
    session = await opened(env, seconds=1)
    told = loads(await session.ask({"number": 2, "do": "step", "action": "go"}))
    assert told["final"]
    assert told["error"]["classes"][0] == "agentr1_envs.errors.EnvTimeoutError"
    assert "took longer than 1 s" in session.ended
    await session.end(session.ended)
    assert not session.join(0.05)
    env.free.set()
    assert session.join(30)
    assert env.closed.is_set()


async def test_a_second_connection_takes_over() -> None:
    session, heard = await opened(Gate()), []

    async def first(reason: str) -> None:
        heard.append(("first", reason))

    async def second(reason: str) -> None:
        heard.append(("second", reason))

    await session.take(first)
    await session.take(second)
    session.leave(first)  # that of one who was hung up means nothing
    await session.end("enough")
    assert heard == [("first", "the session was taken up at another connection"), ("second", "enough")]


async def test_what_goes_wrong_at_the_start_is_told() -> None:
    def broken(mode: str | None) -> Any:
        raise KeyError(f"mode {mode}")

    session = Session(broken, 60.0, {})
    assert loads(await session.open("ansi"))["error"]["text"] == "'mode ansi'"
    assert not session.is_open
    await session.end("over")
    session = Session(lambda mode: Gate(), 60.0, {})
    assert "render_mode='human'" in loads(await session.open("human"))["error"]["text"]
    await session.end("over")
