import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import served_toys

pytest.importorskip("websockets", reason="the extra remote is not installed")
from agentr1_envs.errors import RemoteError, SessionLostError, WireError
from agentr1_envs.remote.session import RemoteSession

ID = "toys/Stranger-v0"
RESET = {"do": "reset", "seed": 0, "options": None}
GO = {"do": "step", "action": "go"}


@pytest.fixture
def session() -> Iterator[Callable[..., RemoteSession]]:
    """Opens sessions."""
    opened: list[RemoteSession] = []

    def _open(url: str, env_id: str = ID, token: str = "", seconds: float = 5.0) -> RemoteSession:
        opened.append(RemoteSession(url, token, env_id, None, reconnect_seconds=seconds, wait=False))
        return opened[-1]

    yield _open
    for each in opened:
        each.close()


def stranger(mode: str | None) -> served_toys.Stranger:
    return served_toys.Stranger()


def break_connection(session: RemoteSession) -> None:
    """As when the network fails."""
    session._connection._socket.socket.shutdown(2)  # type: ignore[union-attr]


def test_a_broken_connection_is_not_noticed(serve_here: Any, session: Any) -> None:
    played = session(serve_here(stranger))
    played.ask(RESET)
    for count in (1, 2, 3):
        assert played.ask(GO)["result"]["info"]["count"] == count
        break_connection(played)


def test_a_call_under_way_when_the_connection_breaks_is_done_once(serve_here: Any, session: Any) -> None:
    played = session(serve_here(stranger))
    played.ask(RESET)
    threading.Timer(0.4, break_connection, [played]).start()
    assert played.ask({"do": "step", "action": "sleep 1.2"})["result"]["info"]["count"] == 1
    assert played.ask(GO)["result"]["info"]["count"] == 2


def test_what_the_environment_raises_is_an_answer(serve_here: Any, session: Any) -> None:
    played = session(serve_here(stranger))
    played.ask(RESET)
    assert played.ask({"do": "step", "action": "key x"})["error"]["text"] == "'x'"
    assert played.ask(GO)["result"]["info"]["count"] == 1


def test_what_cannot_be_sent_leaves_the_session_as_it_was(serve_here: Any, session: Any) -> None:
    played = session(serve_here(stranger, max_message_bytes=2000))
    played.ask(RESET)
    with pytest.raises(WireError, match=r"has 5\d\d\d bytes, .* takes 2000 at most; serve with a larger --max-mess"):
        played.ask({"do": "step", "action": "x" * 5000})
    with pytest.raises(WireError, match="holds object"):
        played.ask({"do": "step", "action": object()})
    assert played.ask(GO)["result"]["info"]["count"] == 1


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_an_ended_session_is_over_on_both_sides(serve_here: Any, session: Any, until: Any, end: str) -> None:
    url = serve_here(stranger, max_sessions=1)
    played = session(url)
    with pytest.raises(RemoteError, match="1 sessions and takes no more"):
        session(url)
    played.close() if end == "close" else played.abandon("enough of it")
    with pytest.raises(SessionLostError, match="it was closed" if end == "close" else "enough of it"):
        played.ask(GO)

    def there_is_room() -> bool:
        try:
            session(url)
        except RemoteError:
            return False
        return True

    assert there_is_room() if end == "close" else until(there_is_room) is None


def test_an_expired_session_is_lost(serve_here: Any, session: Any, until: Any) -> None:
    closed = threading.Event()

    class Told(served_toys.Stranger):
        def close(self) -> None:
            closed.set()

    played = session(serve_here(lambda mode: Told(), idle_seconds=0.2))
    assert closed.wait(30)
    for _ in range(2):
        with pytest.raises(SessionLostError, match=r"nobody asked anything for 0.2 s"):
            played.ask(GO)


def test_a_slow_call_loses_the_session(serve_here: Any, session: Any) -> None:
    played = session(serve_here(stranger, step_seconds=1))
    played.ask(RESET)
    answer = played.ask({"do": "step", "action": "sleep 3"})
    assert answer["final"]
    with pytest.raises(SessionLostError, match=r"no answer within 1 s"):
        played.ask(GO)


def test_an_interrupted_call_loses_the_session(serve_here: Any, session: Any, monkeypatch: Any) -> None:
    played = session(serve_here(stranger))
    played.ask(RESET)

    def interrupted(text: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(played._connection, "ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        played.ask(GO)
    with pytest.raises(SessionLostError, match=r"interrupted \(KeyboardInterrupt\)"):
        played.ask(GO)


def test_what_making_the_environment_raised_is_raised(serve_here: Any, session: Any) -> None:
    def broken(mode: str | None) -> Any:
        raise KeyError("corpus")

    with pytest.raises(KeyError, match="'corpus'"):
        session(serve_here(broken))


def test_a_refused_session_says_why(serve_here: Any, session: Any) -> None:
    url = serve_here(stranger, token="secret")
    with pytest.raises(RemoteError, match="token is missing"):
        session(url)
    with pytest.raises(RemoteError, match="serves 'toys/Stranger-v0', not 'agentr1/GSM8K-v0'"):
        session(url, "agentr1/GSM8K-v0", "secret")
    with pytest.raises(RemoteError, match=r"No environment server answers at ws://127.0.0.1:1 .*agentr1-envs serve ID"):
        session("ws://127.0.0.1:1")
