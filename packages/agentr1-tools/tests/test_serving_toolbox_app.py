import asyncio

import httpx
import pytest
from agentr1_tools import tool

pytest.importorskip("fastapi", reason="the extra serve is not installed")
from agentr1_tools.serving.gate import ServingLimits
from agentr1_tools.serving.toolbox_app import toolbox_app


@tool(cooperative=True, cacheable=False, timeout=5, min_interval=0.001)
async def meet(name: str) -> str:
    """Wait until three have come.

    Args:
        name: Who comes.
    """
    come.append(name)
    while len(come) < 3:
        await asyncio.sleep(0.01)
    return f"{name} met two"


come: list[str] = []


@pytest.fixture
async def client(open_box):
    app = toolbox_app(open_box(["calculator", meet]), ServingLimits(max_batch=3, max_requests=2))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://box") as client:
        yield client


async def test_health_and_the_list_of_tools(client):
    assert (await client.get("/health")).json() == {"status": "ok", "tools": ["calculator", "meet"], "running": 0}
    calculator, shown = (await client.get("/tools")).json()["tools"]
    assert calculator["function"]["name"] == "calculator"
    assert shown == {**meet.schema, "timeout": 5, "cacheable": False, "min_interval": 0.001}


async def test_one_call(client):
    answer = await client.post("/call", json={"name": "calculator", "arguments": {"expression": "6 * 7"}})
    assert answer.status_code == 200
    result = answer.json()
    assert (result["status"], result["data"], result["text"], result["source"]) == ("success", 42, "42", "calculator")


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ({"name": "calculator", "arguments": {"expression": "1 / 0"}}, "EXECUTION_ERROR"),
        ({"name": "calculator"}, "INVALID_ARGUMENT"),
        ({"name": "calculater"}, "UNKNOWN_TOOL"),
    ],
)
async def test_a_call_that_fails_is_data(client, call, code):
    answer = await client.post("/call", json=call)
    assert (answer.status_code, answer.json()["error"]) == (200, code)


async def test_a_batch_runs_together_and_comes_back_in_order(client):
    come.clear()
    calls = [{"name": "meet", "arguments": {"name": name}} for name in "abc"]
    results = (await client.post("/calls", json={"calls": calls})).json()["results"]
    assert [result["data"] for result in results] == ["a met two", "b met two", "c met two"]


async def test_a_bad_call_does_not_stop_the_others_of_its_batch(client):
    good = {"name": "calculator", "arguments": {"expression": "1 + 1"}}
    results = (await client.post("/calls", json={"calls": [{"name": "nobody"}, good]})).json()["results"]
    assert [result["error"] for result in results] == ["UNKNOWN_TOOL", None]


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("/call", b"{", "JSON decode error"),
        ("/call", b"[]", "body"),
        ("/call", b'{"arguments": {}}', "body.name: Field required"),
        ("/call", b'{"name": "calculator", "arguments": [1]}', "body.arguments"),
        ("/call", b'{"name": "calculator", "argument": {}}', "body.argument: Extra inputs"),
        ("/calls", b'{"calls": []}', "at least 1 item"),
        ("/calls", b'{"calls": [{"name": "a"}, {"name": "a"}, {"name": "a"}, {"name": "a"}]}', "at most 3 items"),
    ],
)
async def test_a_body_of_another_form_is_refused_as_a_result(client, path, body, problem):
    answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]) == (422, "PARSE_ERROR")
    assert problem in answer.json()["text"]


async def test_the_gate_stands_in_front(client):
    answer = await client.post("/call", content=b"x" * (1 << 21))
    assert (answer.status_code, answer.json()["error"]) == (413, "INVALID_ARGUMENT")
