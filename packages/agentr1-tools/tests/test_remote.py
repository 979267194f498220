import json
import os
import signal
import threading
import time

import pytest
from agentr1_tools import ToolBox, ToolCall, load_tool
from agentr1_tools.cli import main
from agentr1_tools.errors import ToolConfigError, UnknownToolError
from agentr1_tools.remote import RemoteTool, declarations, remote_tools

pytestmark = pytest.mark.once

pytest.importorskip("fastapi", reason="the extra serve is not installed")
PATIENCE = 60.0  # of a call on a busy machine


def same(result):
    return result.status, result.data, result.error, result.text


def test_a_remote_tool_is_like_the_tool_itself(start_server, open_box):
    server = start_server("serve", "--tools", "calculator", "odd", "--port", "0")
    here, there = open_box(["calculator"]), open_box(remote_tools(server.url, timeout=PATIENCE))
    assert there.names == ["calculator", "odd"]
    assert there.schemas[0] == here.schemas[0]
    for expression in ("6 * 7", "1 / 0", "import os", "2 ** 0.5"):
        call = ToolCall("calculator", {"expression": expression})
        assert same(there.call(call)) == same(here.call(call))
    assert there.call(ToolCall("calculator", {})).error == "INVALID_ARGUMENT"
    result = there.call(ToolCall("odd", {"text": "\udcff"}))
    assert result.data == {"text": ["\ufffd", "\ufffd", "ü"]}  # a result holds no half of a character
    assert result.source == "odd"
    assert result.metrics["server_seconds"] >= 0
    assert there.call(ToolCall("odd", {"text": "refuse"})).text == "Error [ODD_TEXT]: not that text"


def test_the_limits_are_the_servers_and_its_own_timeout_comes_first(start_server, open_box):
    server = start_server("serve", "--tools", "hang", "odd", "calculator", "--port", "0")
    hang, odd, calculator = remote_tools(server.url)
    assert (hang.timeout, odd.min_interval) == (1.0, 0.01)
    assert (odd.cacheable, calculator.cacheable) == (False, True)
    box = open_box([hang])
    said = (box.call(ToolCall("hang")).text for _ in range(20))  # on a busy machine its own second may end first
    assert "Error [TIMEOUT]: the tool gave no answer within 0.5 s" in said
    impatient = RemoteTool(server.url, "hang", timeout=0.1)
    started = time.perf_counter()
    assert open_box([impatient]).call(ToolCall("hang")).error == "TIMEOUT"
    assert time.perf_counter() - started < 20


def test_a_server_that_is_killed_is_NETWORK_ERROR_until_it_is_back(start_server, open_box):
    server = start_server("serve", "--tools", "nap", "calculator", "--port", "0")
    nap, calculator = remote_tools(server.url, timeout=PATIENCE)
    box = open_box([nap, calculator])
    assert box.call(ToolCall("nap", {"seconds": 0})).data == "slept 0 s"
    results = []
    caller = threading.Thread(target=lambda: results.append(box.call(ToolCall("nap", {"seconds": 50}))))
    caller.start()
    server.wait_until_at_work()
    started = time.perf_counter()
    os.kill(server.process.pid, signal.SIGKILL)
    caller.join(45)
    assert [result.error for result in results] == ["NETWORK_ERROR"]
    assert time.perf_counter() - started < 40  # the nap would have taken 50 s
    gone = box.call(ToolCall("calculator", {"expression": "1 + 1"}))
    assert gone.error == "NETWORK_ERROR"
    assert server.url in gone.text
    start_server("serve", "--tools", "nap", "calculator", "--port", str(server.port))
    assert box.call(ToolCall("calculator", {"expression": "1 + 1"})).data == 2
    assert box.call(ToolCall("nap", {"seconds": 0})).ok


def test_a_server_with_enough_to_do_says_so(start_server, open_box):
    arguments = ("--max-requests", "1", "--max-body-bytes", "200")
    server = start_server("serve", "--tools", "nap", "calculator", "odd", "--port", "0", *arguments)
    box = open_box(remote_tools(server.url, timeout=PATIENCE))
    caller = threading.Thread(target=lambda: box.call(ToolCall("nap", {"seconds": 4})))
    caller.start()
    server.wait_until_at_work()
    busy = box.call(ToolCall("calculator", {"expression": "1 + 1"}))
    assert busy.error == "RATE_LIMITED"
    assert "try again later" in busy.text
    caller.join()
    assert box.call(ToolCall("calculator", {"expression": "1 + 1"})).data == 2
    for size in (200, 3_000_000):
        long = box.call(ToolCall("odd", {"text": "x" * size}))
        assert (long.error, "200 bytes" in long.text) == ("INVALID_ARGUMENT", True)


def test_by_name_as_a_recipe_names_it(start_server, capsys):
    server = start_server("serve", "--tools", "calculator", "--port", "0")
    tool = load_tool("remote", url=server.url, tool="calculator", timeout=PATIENCE)
    assert tool.name == "calculator"
    config = json.dumps({"url": server.url, "tool": "calculator", "timeout": PATIENCE})
    assert main(["call", "remote", '{"expression": "6 * 7"}', "--config", config]) == 0
    assert capsys.readouterr().out == "42\n"
    far = load_tool("remote", url=server.url, tool="calculator", prefix="far_", timeout=PATIENCE)
    with ToolBox([tool, far]) as box:
        assert box.names == ["calculator", "far_calculator"]
        assert box.call(ToolCall("far_calculator", {"expression": "6 * 7"})).data == 42


def test_a_server_configures_its_tools(start_server, tmp_path, open_box):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"title": "Oslo", "text": "Oslo is a city."}\n', encoding="utf-8")
    config = json.dumps({"wiki_search": {"corpus": str(corpus), "timeout": 10}})
    server = start_server("serve", "--tools", "wiki_search", "--port", "0", "--config", config)
    box = open_box(remote_tools(server.url))
    assert box.call(ToolCall("wiki_search", {"query": "oslo"})).text == "[1] Oslo\nOslo is a city."


def test_a_tool_the_server_has_not(start_server):
    server = start_server("serve", "--tools", "calculator", "--port", "0")
    with pytest.raises(UnknownToolError, match=r"no tool 'calculater'; did you mean 'calculator'\? \(it has"):
        RemoteTool(server.url, "calculater")
    with pytest.raises(UnknownToolError, match="has no tool 'nap'"):
        remote_tools(server.url, names=["calculator", "nap"])


def test_a_tool_the_server_no_longer_has_is_an_error_result(start_server, open_box):
    declared = declarations(start_server("serve", "--tools", "calculator", "--port", "0").url)["calculator"]
    other = start_server("serve", "--tools", "nap", "--port", "0")
    box = open_box([RemoteTool(other.url, "calculator", declared=declared, timeout=PATIENCE)])
    result = box.call(ToolCall("calculator", {"expression": "1"}))
    assert (result.error, result.source) == ("UNKNOWN_TOOL", "calculator")


def test_no_server_is_said_with_the_command_that_starts_one():
    with pytest.raises(ToolConfigError, match=r"start one with: agentr1-tools serve --tools NAME"):
        RemoteTool("http://127.0.0.1:9", "calculator")
    with pytest.raises(ToolConfigError, match="missing 2 required"):
        load_tool("remote")


def test_another_kind_of_server_is_not_taken_for_one(start_server, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"title": "Oslo", "text": "Oslo is a city."}\n', encoding="utf-8")
    server = start_server("serve-retriever", "--corpus", str(corpus), "--port", "0")
    with pytest.raises(ToolConfigError, match="the tool server answered 404"):
        remote_tools(server.url)
    declared = {
        "function": {"description": "Add.", "parameters": {"type": "object"}},
        "timeout": 1,
        "cacheable": True,
        "min_interval": 0,
    }
    tool = RemoteTool(server.url, "calculator", declared=declared, timeout=PATIENCE)
    with ToolBox([tool]) as box:
        result = box.call(ToolCall("calculator"))
    assert (result.error, "answered 404 without a result" in result.text) == ("NETWORK_ERROR", True)


def test_a_remote_tool_can_be_closed_and_opened_again(start_server):
    server = start_server("serve", "--tools", "calculator", "--port", "0")
    tool = RemoteTool(server.url, "calculator", timeout=PATIENCE)
    for _ in range(2):
        with ToolBox([tool]) as box:
            assert box.call(ToolCall("calculator", {"expression": "6 * 7"})).data == 42
