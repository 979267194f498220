import multiprocessing
import os
import re
import socket
import threading
import time

import pytest
from agentr1_tools.errors import ToolConfigError, ToolError
from agentr1_tools.http_client import HttpClient


@pytest.fixture
def wire():
    """A socket on loopback whose connections are answered, in order, by the bytes given; None closes unanswered."""
    listener = socket.create_server(("127.0.0.1", 0))
    served, over = [], threading.Event()

    def answer(*replies, pause=0.0):
        def work():
            for reply in replies:
                try:
                    connection, _ = listener.accept()
                except OSError:  # the test is over
                    return
                with connection:
                    served.append(received(connection))
                    over.wait(pause)
                    if reply is not None:
                        connection.sendall(reply)

        threading.Thread(target=work, daemon=True).start()
        return HttpClient(f"http://127.0.0.1:{listener.getsockname()[1]}", "the probe")

    answer.served = served
    yield answer
    over.set()
    listener.close()


def received(connection):
    """One request, whole."""
    request = connection.recv(65536)
    while b"\r\n\r\n" not in request:
        request += connection.recv(65536)
    head, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", head)
    while length and len(body) < int(length[1]):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def reply(body, status=200, length=None):
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status} X\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n".encode() + body


def test_json_there_and_back(wire):
    client = wire(reply(b'{"a": [1]}', status=418))
    assert client.post("/x", {"text": "\ud800"}, 5) == (418, {"a": [1]})
    assert wire.served[0].startswith(b"POST /x HTTP/1.1")
    assert wire.served[0].endswith(b'{"text": "\\ud800"}')
    client.close()


def test_a_proxy_is_not_asked_for_what_is_here(wire, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert wire(reply(b"5")).get("/x", 5) == (200, 5)


def test_a_connection_that_breaks_is_tried_once_more(wire):
    assert wire(None, reply(b"5")).get("/x", 5) == (200, 5)
    assert len(wire.served) == 2


def test_one_that_breaks_twice_is_NETWORK_ERROR(wire):
    with pytest.raises(ToolError, match=r"the probe at http://127.0.0.1:\d+ cannot be used") as caught:
        wire(None, None, reply(b"5")).get("/x", 5)
    assert caught.value.code == "NETWORK_ERROR"
    assert len(wire.served) == 2


def test_nobody_there_is_NETWORK_ERROR_at_once():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    started = time.perf_counter()
    with pytest.raises(ToolError) as caught:
        HttpClient(f"http://127.0.0.1:{port}", "the probe").get("/x", 30)
    assert caught.value.code == "NETWORK_ERROR"
    assert time.perf_counter() - started < 10


def test_no_answer_in_time_is_TIMEOUT_and_not_tried_again(wire):
    client = wire(reply(b"5"), reply(b"5"), pause=12)
    started = time.perf_counter()
    with pytest.raises(ToolError, match=r"the probe gave no answer within 1 s") as caught:
        client.get("/x", 1)
    assert caught.value.code == "TIMEOUT"
    assert time.perf_counter() - started < 11
    assert len(wire.served) == 1


def test_an_answer_that_trickles_in_meets_the_same_limit():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle():
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 X\r\nContent-Length: 1000\r\n\r\n")
                for _ in range(400):
                    time.sleep(0.05)
                    try:
                        connection.sendall(b"1")
                    except OSError:
                        return

        threading.Thread(target=trickle, daemon=True).start()
        started = time.perf_counter()
        with pytest.raises(ToolError) as caught:
            HttpClient(f"http://127.0.0.1:{listener.getsockname()[1]}", "the probe").get("/x", 0.3)
        assert caught.value.code == "TIMEOUT"
        assert time.perf_counter() - started < 15  # all of it would take 20 s


@pytest.mark.parametrize(("body", "problem"), [(b"<html>", "answer 200 is not JSON"), (b"[" * 9000, "not JSON")])
def test_an_answer_that_is_no_json_is_NETWORK_ERROR(wire, body, problem):
    with pytest.raises(ToolError, match=problem) as caught:
        wire(reply(body)).get("/x", 5)
    assert caught.value.code == "NETWORK_ERROR"


def test_an_answer_that_is_too_long_is_NETWORK_ERROR(wire, monkeypatch):
    monkeypatch.setattr("agentr1_tools.http_client.MAX_BYTES", 10)
    with pytest.raises(ToolError, match="more than 10 bytes"):
        wire(reply(b"12345678901")).get("/x", 5)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://x", "http://", 5])
def test_what_is_no_address_is_said_when_it_is_given(url):
    with pytest.raises(ToolConfigError, match=r"is no address of a server; give one such as http://127.0.0.1:8000"):
        HttpClient(url, "the probe")


def test_a_forked_child_has_connections_of_its_own(wire):
    client = wire(reply(b'"parent"'), reply(b'"child"'))
    client.open()
    parents = client._pool()
    assert client.get("/x", 5) == (200, "parent")

    def ask(answers):
        answers.send((client._pool() is parents, client.get("/x", 5), os.getpid()))
        client.close()

    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=ask, args=(sender,))
    child.start()
    shared, answer, pid = receiver.recv()
    child.join(30)
    assert (shared, answer) == (False, (200, "child"))
    assert pid == child.pid
    assert client._pool() is parents
    client.close()
