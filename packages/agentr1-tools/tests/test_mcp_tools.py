import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from agentr1_tools import ToolBox, ToolCall, load_tool
from agentr1_tools.errors import DuplicateNameError, MissingExtraError, ToolConfigError, UnknownToolError
from agentr1_tools.mcp_tools import as_result, mcp_tool, mcp_tools

pytest.importorskip("mcp", reason="the extra mcp is not installed")
from mcp.types import (
    CallToolResult,
    EmbeddedResource,
    TextContent,
    TextResourceContents,
)

pytestmark = pytest.mark.once

PROBE = Path(__file__).with_name("mcp_probe_server.py")
STDIO = [sys.executable, str(PROBE)]
PATIENCE = 60.0  # of a call on a busy machine; connecting again is on its clock


def wait_for(port, process):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    pytest.fail("the server does not listen")


@pytest.fixture
def http_server():
    """Starts the probe over streamable HTTP; gives the process and the address."""
    started = []

    def start(port=None):
        if port is None:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
        process = subprocess.Popen([*STDIO, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started.append(process)
        wait_for(port, process)
        return process, port, f"http://127.0.0.1:{port}/mcp"

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def napping(tmp_path):
    """Starts a call of `nap` in a thread, and waits until the server is at it; gives the thread and its results."""

    def start(box):
        begun, results = tmp_path / "begun", []
        call = ToolCall("nap", {"seconds": 50, "begun": str(begun)})
        caller = threading.Thread(target=lambda: results.append(box.call(call)))
        caller.start()
        while not begun.exists():
            assert caller.is_alive(), results
            time.sleep(0.02)
        return caller, results

    return start


@pytest.fixture(scope="module")
def box():
    """All tools of one stdio server, open for the tests that only call them."""
    with ToolBox(mcp_tools(STDIO, timeout=PATIENCE)) as box:
        yield box


def test_a_stdio_servers_tools_are_tools(box):
    assert box.names == ["add", "say_it_loud", "process_id", "nap", "refuse", "show", "attach", "secret"]
    function = box.schemas[0]["function"]
    assert function["description"] == "Add two whole numbers."
    assert function["parameters"]["required"] == ["a", "b"]
    results = box.call_many([ToolCall("add", {"a": number, "b": 1}) for number in range(5)])
    assert [result.data for result in results] == [{"result": number + 1} for number in range(5)]
    assert results[0].text == "1"
    assert box.call(ToolCall("say_it_loud", {"text": "hi"})).data == "HI"
    assert box.call(ToolCall("add", {"a": "x", "b": 1})).error == "INVALID_ARGUMENT"
    failed = box.call(ToolCall("refuse"))
    assert failed.error == "EXECUTION_ERROR"
    assert "the lake froze over" in failed.text


def test_what_a_text_model_cannot_read_is_named(box):
    shown = box.call(ToolCall("show"))
    assert shown.text == ("a pixel:\n[image, image/png, 6 bytes: not shown]\n[audio, audio/wav, 5 bytes: not shown]")
    assert shown.metrics["unread"] == 2
    attached = box.call(ToolCall("attach"))
    assert attached.text == (
        "attached:\n[link to manual: probe://manual]\n[resource probe://blob, application/zip, 4 bytes: not shown]"
    )


def test_results_of_every_kind():
    text = TextContent(text="so")
    assert as_result(CallToolResult(content=[text])).data == "so"
    both = as_result(CallToolResult(content=[text], structured_content={"a": 1}))
    assert (both.data, both.text, dict(both.metrics)) == ({"a": 1}, "so", {})
    assert as_result(CallToolResult(content=[], structured_content={"a": 1})).text == '{"a": 1}'
    assert as_result(CallToolResult(content=[])).data == ""
    failed = as_result(CallToolResult(content=[text], is_error=True))
    assert (failed.error, failed.text) == ("EXECUTION_ERROR", "Error [EXECUTION_ERROR]: so")
    embedded = EmbeddedResource(resource=TextResourceContents(uri="a://b", text="inside"))
    assert as_result(CallToolResult(content=[embedded])).text == "inside"


def test_one_session_for_all_tools_of_a_server_open_while_one_of_them_is(no_process_left):
    first, second = mcp_tools(STDIO, names=["process_id", "add"], env={"PROBE": "one"}, timeout=PATIENCE)
    third = load_tool("mcp", tool="process_id", command=STDIO, env={"PROBE": "one"}, prefix="other_", timeout=PATIENCE)
    with ToolBox([first, second, third]) as box:
        pids = {box.call(ToolCall(name)).data["result"] for name in ("process_id", "other_process_id")}
        assert len(pids) == 1
        second.close()
        assert box.call(ToolCall("process_id")).data["result"] in pids
    with pytest.raises(ProcessLookupError):
        os.kill(pids.pop(), 0)
    with ToolBox([first]) as box:
        assert box.call(ToolCall("process_id")).ok


def test_a_stdio_server_that_dies_is_NETWORK_ERROR_and_the_next_call_starts_another(open_box, napping):
    box = open_box(mcp_tools(STDIO, names=["nap", "process_id"], env={"PROBE": "mortal"}, timeout=PATIENCE))
    pid = box.call(ToolCall("process_id")).data["result"]
    caller, results = napping(box)
    started = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    caller.join(45)
    assert [result.error for result in results] == ["NETWORK_ERROR"]
    assert time.perf_counter() - started < 40  # the nap would have taken 50 s
    again = box.call(ToolCall("process_id"))
    assert again.ok
    assert again.data["result"] != pid


def test_an_http_server_that_dies_is_NETWORK_ERROR_until_it_is_back(open_box, http_server, napping):
    process, port, url = http_server()
    box = open_box(mcp_tools(url=url, names=["add", "nap"], timeout=PATIENCE))
    add = ToolCall("add", {"a": 40, "b": 2})
    assert box.call(add).data == {"result": 42}
    caller, results = napping(box)
    process.kill()
    process.wait()
    caller.join(45)
    assert [result.error for result in results] == ["NETWORK_ERROR"]
    assert [box.call(add).error for _ in range(2)] == ["NETWORK_ERROR"] * 2
    http_server(port)
    assert box.call(add).data == {"result": 42}


def test_a_call_past_its_limit_is_TIMEOUT_and_the_session_lives_on(open_box):
    napping = {"PROBE": "napping"}  # a server of its own: nobody else waits for its nap
    (nap,) = mcp_tools(STDIO, names=["nap"], env=napping, timeout=0.3)
    pid = load_tool("mcp", tool="process_id", command=STDIO, env=napping, timeout=PATIENCE)
    box = open_box([nap, pid])
    before = box.call(ToolCall("process_id")).data
    started = time.perf_counter()
    result = box.call(ToolCall("nap", {"seconds": 3}))
    assert result.text == "Error [TIMEOUT]: the tool gave no answer within 0.3 s"
    assert time.perf_counter() - started < 2.9
    assert box.call(ToolCall("process_id")).data == before


def test_a_server_gets_the_environment_it_is_given_and_no_more(open_box, monkeypatch):
    monkeypatch.setenv("PROBE_SECRET", "ours")
    bare = mcp_tools(STDIO, names=["secret"], prefix="bare_", timeout=PATIENCE)
    given = mcp_tools(STDIO, names=["secret"], env={"PROBE_SECRET": "theirs"}, timeout=PATIENCE)
    box = open_box([*bare, *given])
    assert box.call(ToolCall("bare_secret")).text == "nothing"
    assert box.call(ToolCall("secret")).text == "theirs"


def test_headers_go_with_the_requests():
    seen = []

    def refuse(listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the test is over
                return
            with connection:
                seen.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        with pytest.raises(ToolConfigError, match="cannot be used"):
            mcp_tools(url=url, headers={"Authorization": "Bearer probe"})
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert seen
    assert all(b"authorization: bearer probe" in request.lower() for request in seen)


def test_a_server_that_does_not_start_says_why():
    with pytest.raises(ToolConfigError, match=r"probe_server.py broken cannot be used: .*: probe: no licence found"):
        mcp_tools([*STDIO, "broken"])
    with pytest.raises(ToolConfigError, match="FileNotFoundError"):
        mcp_tools(["no-such-program"])
    with pytest.raises(ToolConfigError, match=r"http://127.0.0.1:9/mcp cannot be used: ConnectError"):
        mcp_tools(url="http://127.0.0.1:9/mcp")


def test_a_server_that_says_nothing_is_given_up_and_ended(monkeypatch, no_process_left):
    monkeypatch.setattr("agentr1_tools.mcp_session.CONNECT_SECONDS", 0.5)
    with pytest.raises(ToolConfigError, match=r"the MCP server did not answer within 0\.5 s"):
        mcp_tools([sys.executable, "-c", "import time; time.sleep(600)"])


def test_a_wrong_set_up_is_said(box, monkeypatch):
    with pytest.raises(UnknownToolError, match=r"has no tool 'ad'; did you mean 'add'\?"):
        mcp_tool("ad", command=STDIO)
    for wrong in ({}, {"command": STDIO, "url": "http://x"}):
        with pytest.raises(ToolConfigError, match="give either command="):
            mcp_tools(**wrong)
    with pytest.raises(ToolConfigError, match="give a list of program and arguments"):
        mcp_tools("python server.py")
    with pytest.raises(ToolConfigError, match="env= is for"):
        mcp_tools(url="http://x", env={"a": "b"})
    with pytest.raises(ToolConfigError, match="headers= is for"):
        mcp_tools(STDIO, headers={"a": "b"})
    with pytest.raises(DuplicateNameError, match=r"'add' and 'Say-It.Loud' of .* are both 'p{64}' here"):
        mcp_tools(STDIO, prefix="p" * 64)
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'agentr1-tools\[mcp\]'"):
        mcp_tools(STDIO)
