import socket
import threading
from typing import Any

import pytest
import served_toys

pytest.importorskip("websockets", reason="the extra remote is not installed")
from agentr1_envs.errors import RemoteError, SettingError
from agentr1_envs.remote.connection import Connection, DroppedError, socket_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ws://127.0.0.1:8002", "ws://127.0.0.1:8002/session"),
        ("http://[::1]:80/", "ws://[::1]:80/session"),
        ("https://host/envs/", "wss://host/envs/session"),
        ("wss://host", "wss://host/session"),
    ],
)
def test_addresses(url: str, address: str) -> None:
    assert socket_address(url) == address


@pytest.mark.parametrize("url", ["", "host:8002", "ftp://host", "ws://", "ws://host?x=1"])
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(SettingError, match=r"give one such as ws://127\.0\.0\.1:8002"):
        socket_address(url)


def test_texts_go_and_come(serve_here: Any) -> None:
    connection = Connection(serve_here(lambda mode: served_toys.Stranger()), "", 30.0)
    assert "must open or resume" in connection.ask('{"do": "x"}')
    with pytest.raises(DroppedError):
        connection.ask('{"do": "x"}')
    connection.tell("{}")
    connection.close()
    connection.close()


def test_nobody_there_is_worth_another_try() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(DroppedError, match="refused"):
        Connection(f"ws://127.0.0.1:{port}", "", 30.0)


@pytest.mark.parametrize(
    ("answer", "error", "problem"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", RemoteError, "it answered 404; is it one"),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", RemoteError, "the token is missing"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", RemoteError, "is no environment server"),
        (b"", DroppedError, "."),
    ],
)
def test_who_else_may_listen_there(answer: bytes, error: type[Exception], problem: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(error, match=problem):
            Connection(f"ws://127.0.0.1:{listener.getsockname()[1]}", "", 30.0)
        thread.join()
