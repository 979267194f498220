import socket
import threading
import time

import pytest
from agentr1_tools.worker import channel as channels
from agentr1_tools.worker.channel import Channel, ChannelClosed


@pytest.fixture
def ends():
    left, right = (Channel(end) for end in socket.socketpair())
    yield left, right
    left.close()
    right.close()


@pytest.mark.parametrize("message", [None, {"a": ["é🎉", 1.5, None]}, "lone \ud800 surrogate", "x" * 3_000_000])
def test_messages_arrive_whole(ends, message):
    left, right = ends
    sender = threading.Thread(target=left.send, args=(message,))
    sender.start()
    assert right.receive(5) == message
    sender.join()


def test_a_deadline_covers_the_whole_message(ends):
    left, right = ends
    left._socket.sendall((100).to_bytes(4, "big") + b"half of it")
    started = time.perf_counter()
    with pytest.raises(TimeoutError):
        right.receive(0.1)
    assert 0.09 < time.perf_counter() - started < 30


def test_a_closed_end_is_noticed(ends):
    left, right = ends
    left.send(1)
    left.close()
    assert right.receive(1) == 1
    with pytest.raises(ChannelClosed):
        right.receive(1)
    with pytest.raises(ChannelClosed):
        right.send("x" * 1000)


def test_what_is_too_large_is_not_sent(ends, monkeypatch):
    left, right = ends
    monkeypatch.setattr(channels, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match="at most 100"):
        left.send("x" * 100)
    left.send("fits")
    assert right.receive(1) == "fits"
