import json
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import served_toys

pytest.importorskip("fastapi", reason="the extra serve is not installed")
from agentr1_envs.wire import dumps, loads
from agentr1_envs.wire_protocol import ENDED, PROTOCOL
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

OPEN = {"do": "open", "protocol": PROTOCOL, "env_id": "toys/Stranger-v0", "render_mode": None}


class Line:
    """A connection, as a client of any make would have it."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket

    def ask(self, **asked: Any) -> dict[str, Any]:
        self.socket.send(dumps(asked))
        return self.hear()

    def hear(self) -> dict[str, Any]:
        return loads(self.socket.recv(timeout=30))

    def hear_end(self) -> int:
        with pytest.raises(ConnectionClosed) as caught:
            self.socket.recv(timeout=30)
        return caught.value.rcvd.code


@pytest.fixture
def dial() -> Iterator[Callable[..., Line]]:
    """Connects to a server."""
    lines = []

    def _dial(url: str, **headers: str) -> Line:
        line = connect(f"{url}/session", additional_headers=headers, proxy=None, close_timeout=1)
        lines.append(line)
        return Line(line.__enter__())

    yield _dial
    for line in lines:
        line.__exit__(None, None, None)


def stranger(mode: str | None) -> served_toys.Stranger:
    return served_toys.Stranger(render_mode=mode)


def health(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url.replace("ws", "http", 1) + "/health", timeout=30) as answer:
        return json.load(answer)


def test_a_whole_session(serve_here: Any, dial: Any) -> None:
    url = serve_here(stranger, max_sessions=7)
    line = dial(url)
    told = line.ask(**OPEN)["result"]
    assert (told["env_id"], told["settings"]) == ("toys/Stranger-v0", "settings")
    assert health(url) == {"status": "ok", "env_id": "toys/Stranger-v0", "sessions": 1, "max_sessions": 7}
    twin = served_toys.Stranger()
    first = line.ask(number=1, do="reset", seed=4, options=None)["result"]
    assert first["observation"] == twin.reset(seed=4)[0]
    assert line.ask(number=2, do="step", action="go")["result"]["observation"] == twin.step("go")[0]
    assert line.ask(do="close") == {"number": None, "result": {}}
    assert line.hear_end() == ENDED
    assert health(url)["sessions"] == 0


def test_a_dropped_session_is_taken_up(serve_here: Any, dial: Any) -> None:
    url = serve_here(stranger)
    line = dial(url)
    session = line.ask(**OPEN)["result"]["session"]
    line.ask(number=1, do="reset", seed=4, options=None)
    before = line.ask(number=2, do="step", action="go")
    line.socket.socket.shutdown(socket.SHUT_RDWR)  # as if the network had failed
    line = dial(url)
    assert line.ask(do="resume", session=session) == {"number": 0, "result": {}}
    assert dumps(line.ask(number=2, do="step", action="go")) == dumps(before)
    assert line.ask(number=3, do="step", action="go")["result"]["observation"].startswith("go 2 ")
    third = dial(url)
    third.ask(do="resume", session=session)
    assert line.hear_end() == ENDED  # one connection plays
    assert third.ask(number=4, do="render")["result"]["value"] == "rendered 2"


def test_who_leaves_in_the_middle_of_a_call_ends_the_session_if_it_said_so(
    serve_here: Any, dial: Any, until: Any, capfd: Any
) -> None:
    free = threading.Event()

    class Waiting(served_toys.Stranger):
        def step(self, action: str) -> Any:
            return free.wait(60) and super().step(action)

    url = serve_here(lambda mode: Waiting())
    line = dial(url)
    line.ask(**OPEN)
    line.ask(number=1, do="reset", seed=4, options=None)
    line.socket.send(dumps({"number": 2, "do": "step", "action": "go"}))
    line.socket.send(dumps({"do": "close"}))
    line.socket.socket.shutdown(socket.SHUT_RDWR)
    assert health(url)["sessions"] == 1
    free.set()
    until(lambda: health(url)["sessions"] == 0)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        ({**OPEN, "protocol": 0}, "speaks protocol"),
        ({**OPEN, "env_id": "agentr1/GSM8K-v0"}, "serves 'toys/Stranger-v0', not 'agentr1/GSM8K-v0'"),
        ({**OPEN, "render_mode": "human"}, "render_mode='human'"),
        ({"do": "resume", "session": "x"}, "not known to this server"),
        ({"do": "step", "number": 1, "action": "go"}, "must open or resume"),
        ([], "must be a JSON object"),
    ],
)
def test_a_wrong_first_message_is_explained(serve_here: Any, dial: Any, first: Any, problem: str) -> None:
    line = dial(serve_here(stranger))
    line.socket.send(dumps(first))
    assert problem in line.hear()["error"]["text"]
    line.hear_end()


@pytest.mark.parametrize("message", ["{", "3", b"\x80\x04K\x01.", '{"!pickle": 1}'])
def test_what_is_no_json_object_ends_the_connection_only(serve_here: Any, dial: Any, message: Any) -> None:
    url = serve_here(stranger)
    line = dial(url)
    session = line.ask(**OPEN)["result"]["session"]
    line.socket.send(message)
    assert line.hear()["error"]["classes"][0] == "agentr1_envs.errors.WireError"
    line.hear_end()
    assert dial(url).ask(do="resume", session=session)["result"] == {}


def test_a_message_that_is_too_long_ends_the_connection_only(serve_here: Any, dial: Any) -> None:
    url = serve_here(stranger, max_message_bytes=1000)
    line = dial(url)
    session = line.ask(**OPEN)["result"]["session"]
    line.socket.send("x" * 1001)
    assert line.hear_end() == 1009
    assert dial(url).ask(do="resume", session=session)["result"] == {}


def test_nobody_gets_in_without_the_token_or_from_a_web_page(serve_here: Any, dial: Any, capfd: Any) -> None:
    url = serve_here(stranger, token="secret")
    right = {"Authorization": "Bearer secret"}
    for headers in ({}, {"Authorization": "Bearer secrets"}, {"Origin": "http://page"}, {**right, "Origin": "null"}):
        with pytest.raises(InvalidStatus) as caught:
            dial(url, **headers)
        assert caught.value.response.status_code == 403
    assert "result" in dial(url, **right).ask(**OPEN)
    assert capfd.readouterr().err == ""


def test_ended_sessions_hang_up(serve_here: Any, dial: Any) -> None:
    url = serve_here(stranger, idle_seconds=1.5, step_seconds=1)
    idle, slow = dial(url), dial(url)
    session = idle.ask(**OPEN)["result"]["session"]
    slow.ask(**OPEN)
    slow.ask(number=1, do="reset", seed=0, options=None)
    assert slow.ask(number=2, do="step", action="sleep 3")["final"]
    assert slow.hear_end() == ENDED
    assert idle.hear_end() == ENDED
    assert "nobody asked" in dial(url).ask(do="resume", session=session)["error"]["text"]
    assert health(url)["sessions"] == 0
