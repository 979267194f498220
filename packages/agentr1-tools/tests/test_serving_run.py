import contextlib
import signal
import socket
import threading
import time

import httpx
import pytest
from agentr1_tools.cli import main

pytestmark = pytest.mark.once

pytest.importorskip("uvicorn", reason="the extra serve is not installed")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_what_it_has_begun(start_server, number):
    server = start_server("serve", "--tools", "nap", "--port", "0")
    answers = []
    call = {"name": "nap", "arguments": {"seconds": 2}}
    caller = threading.Thread(target=lambda: answers.append(httpx.post(f"{server.url}/call", json=call, timeout=60)))
    caller.start()
    server.wait_until_at_work()
    server.process.send_signal(number)
    out, err = server.process.communicate(timeout=60)
    caller.join()
    assert answers[0].json()["data"] in ("slept 2 s", "slept 2.0 s")
    assert out.splitlines() == [
        "agentr1-tools: stopping; requests at work have 5 s (Ctrl-C again: none)",
        "agentr1-tools: stopped",
    ]
    assert (server.process.returncode, err) == (0, "")


def wait_until_it_listens_no_more(port):
    deadline = time.monotonic() + 30
    with contextlib.suppress(OSError):
        while time.monotonic() < deadline:
            socket.create_connection(("127.0.0.1", port), 30).close()
            time.sleep(0.02)


def test_a_second_signal_waits_for_nothing(start_server):
    server = start_server("serve", "--tools", "nap", "--port", "0")
    endings = []

    def call():
        try:
            answer = httpx.post(f"{server.url}/call", json={"name": "nap", "arguments": {"seconds": 50}}, timeout=60)
            endings.append(answer.status_code)
        except httpx.HTTPError:
            endings.append(500)

    caller = threading.Thread(target=call)
    caller.start()
    server.wait_until_at_work()
    started = time.perf_counter()
    server.process.send_signal(signal.SIGINT)
    wait_until_it_listens_no_more(server.port)  # the first signal has done what it does
    server.process.send_signal(signal.SIGINT)
    out, err = server.process.communicate(timeout=60)
    caller.join()
    assert time.perf_counter() - started < 40
    assert out.endswith("agentr1-tools: stopped\n")
    assert "Traceback" not in err
    assert (endings, server.process.returncode) == ([500], 0)


def test_a_port_that_is_taken_is_said(capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert main(["serve", "--tools", "calculator", "--port", port]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"agentr1-tools: cannot listen on 127.0.0.1, port {port}: Address already in use; choose another --host or "
        "--port (0 takes a free port)\n"
    )


def test_a_port_that_is_none_is_said(capsys):
    assert main(["serve", "--tools", "calculator", "--port", "70000"]) == 2
    assert "port 70000: a port is a number from 0 to 65535; choose" in capsys.readouterr().err
