import asyncio
import json

import pytest
from agentr1_tools.errors import ToolConfigError

pytest.importorskip("fastapi", reason="the extra serve is not installed")
from agentr1_tools.serving.gate import Gate, ServingLimits


class Probe:
    """An application that keeps the bodies it gets and answers when `free` is set."""

    def __init__(self):
        self.bodies = []
        self.free = asyncio.Event()
        self.free.set()

    async def __call__(self, scope, receive, send):
        message = await receive()
        self.bodies.append(message["body"])
        assert message["more_body"] is False
        await self.free.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


async def ask(app, *parts, method="POST", headers=(), pause=0.0, leaves=False):
    """Send a body in parts; returns the status and the JSON of the answer, None where there is none."""
    waiting = [
        {"type": "http.request", "body": part, "more_body": leaves or number < len(parts) - 1}
        for number, part in enumerate(parts)
    ] + [{"type": "http.disconnect"}]
    sent = []

    async def receive():
        await asyncio.sleep(pause)
        return waiting.pop(0)

    async def send(message):
        sent.append(message)

    await app({"type": "http", "method": method, "path": "/x", "headers": list(headers)}, receive, send)
    if not sent:
        return None
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


async def test_a_body_in_parts_arrives_whole():
    probe = Probe()
    assert await ask(Gate(probe, ServingLimits()), b"ab", b"", b"c") == (200, {})
    assert probe.bodies == [b"abc"]


async def test_a_body_that_is_too_long_is_refused_announced_or_not():
    probe = Probe()
    gate = Gate(probe, ServingLimits(max_body_bytes=3))
    assert (await ask(gate, b"abc"))[0] == 200
    status, answer = await ask(gate, b"ab", b"cd")
    assert (status, answer["error"]) == (413, "INVALID_ARGUMENT")
    status, answer = await ask(gate, headers=[(b"content-length", b"4")])
    assert (status, answer["text"]) == (
        413,
        "Error [INVALID_ARGUMENT]: the body is longer than the 3 bytes the server takes",
    )
    assert probe.bodies == [b"abc"]


async def test_more_requests_than_the_limit_are_refused_and_later_ones_are_not():
    probe = Probe()
    probe.free.clear()
    gate = Gate(probe, ServingLimits(max_requests=2))
    first = [asyncio.create_task(ask(gate, b"1")) for _ in range(2)]
    while len(probe.bodies) < 2:
        await asyncio.sleep(0.01)
    assert gate.running == 2
    status, answer = await ask(gate, b"2")
    assert (status, answer["error"]) == (429, "RATE_LIMITED")
    assert len(probe.bodies) == 2
    probe.free.set()
    assert await asyncio.gather(*first) == [(200, {})] * 2
    assert gate.running == 0
    assert (await ask(gate, b"3"))[0] == 200


async def test_what_is_no_POST_passes_however_much_is_at_work():
    probe = Probe()
    gate = Gate(probe, ServingLimits(max_requests=1))
    gate.running = 1
    assert (await ask(gate, b"", method="GET"))[0] == 200


async def test_a_body_that_dawdles_is_refused():
    gate = Gate(Probe(), ServingLimits(body_seconds=0.05))
    status, answer = await ask(gate, b"a", b"b", pause=2)
    assert (status, answer["error"]) == (408, "NETWORK_ERROR")
    assert gate.running == 0


async def test_a_client_that_leaves_halfway_is_no_request():
    probe = Probe()
    gate = Gate(probe, ServingLimits())
    assert await ask(gate, b"a", leaves=True) is None
    assert (probe.bodies, gate.running) == ([], 0)


@pytest.mark.parametrize("field", ["max_body_bytes", "max_requests", "max_batch", "body_seconds"])
def test_a_limit_that_lets_nothing_through_is_refused(field):
    with pytest.raises(ToolConfigError, match=f"{field} is 0; it must be above 0"):
        ServingLimits(**{field: 0})
