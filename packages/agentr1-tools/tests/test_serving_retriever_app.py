import asyncio
import json
import threading

import httpx
import pytest
from agentr1_tools.errors import ToolConfigError
from agentr1_tools.retriever import HttpRetriever
from agentr1_tools.wiki_index import Passage, WikiIndex

pytest.importorskip("fastapi", reason="the extra serve is not installed")
from agentr1_tools.serving.gate import ServingLimits
from agentr1_tools.serving.retriever_app import retriever_app

INDEX = WikiIndex(
    [Passage(number, f"Town {number}", (f"Town {number} has a harbour.", "It is old.")) for number in range(9)]
)


@pytest.fixture
async def client():
    transport = httpx.ASGITransport(retriever_app(INDEX, 2, ServingLimits(max_batch=3)), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://retriever") as client:
        yield client


async def test_with_scores_a_hit_is_a_document_and_its_score(client):
    body = {"queries": ["town 3", "volcano", "town 5"], "topk": 1, "return_scores": True}
    result = (await client.post("/retrieve", json=body)).json()["result"]
    assert [len(hits) for hits in result] == [1, 0, 1]
    assert result[0][0]["document"] == {
        "id": 3,
        "title": "Town 3",
        "text": "Town 3 has a harbour. It is old.",
        "contents": '"Town 3"\nTown 3 has a harbour. It is old.',
    }
    assert result[0][0]["score"] == INDEX.search("town 3", 1)[0].score
    assert result[2][0]["document"]["id"] == 5


async def test_without_scores_a_hit_is_the_document_and_the_default_decides_how_many(client):
    result = (await client.post("/retrieve", json={"queries": ["town 3"]})).json()["result"]
    assert [document["id"] for document in result[0]] == [hit.passage.id for hit in INDEX.search("town 3", 2)]
    assert "score" not in result[0][0]


@pytest.mark.parametrize(
    "body",
    [{}, {"queries": []}, {"queries": ["a"] * 4}, {"queries": "a"}, {"queries": ["a"], "topk": 0}, {"queries": [1]}],
)
async def test_what_is_no_query_is_refused(client, body):
    answer = await client.post("/retrieve", json=body)
    assert (answer.status_code, answer.json()["error"]) == (422, "PARSE_ERROR")


async def test_a_long_search_holds_up_nobody_else():
    class Slow:
        def search(self, query, k=5):
            return self.search_many([query], k)[0]

        def search_many(self, queries, k=5):
            entered.set()
            assert leave.wait(60)
            return [[] for _ in queries]

    entered, leave = threading.Event(), threading.Event()
    transport = httpx.ASGITransport(retriever_app(Slow()))
    async with httpx.AsyncClient(transport=transport, base_url="http://retriever", timeout=60) as client:
        search = asyncio.create_task(client.post("/retrieve", json={"queries": ["a", "b"]}))
        while not entered.is_set():
            await asyncio.sleep(0.01)
        assert (await client.get("/health")).json() == {"status": "ok", "running": 1}
        leave.set()
        assert (await search).json() == {"result": [[], []]}


async def test_health(client):
    assert (await client.get("/health")).json() == {"status": "ok", "running": 0}


def test_a_default_that_finds_nothing_is_refused():
    with pytest.raises(ToolConfigError, match="topk is 0; legal are 1 to 1000"):
        retriever_app(INDEX, 0)


def test_the_console_script_serves_a_corpus_and_the_client_reads_it(start_server, tmp_path):
    rows = [{"title": passage.title, "sentences": passage.sentences} for passage in INDEX.passages]
    rows.append({"id": "w", "contents": '""Weird Al" Yankovic"\nA musician.\n\nHe parodies.'})
    rows.append({"id": "e", "title": "Empty", "text": ""})
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    server = start_server("serve-retriever", "--corpus", str(folder), "--port", "0")
    retriever = HttpRetriever(server.url, 10)
    found = retriever.search("town 3", 4)
    local = WikiIndex.load(folder).search("town 3", 4)
    assert [(hit.passage.id, hit.passage.title, hit.passage.text, hit.score) for hit in found] == [
        (hit.passage.id, hit.passage.title, hit.passage.text, hit.score) for hit in local
    ]
    assert [len(found), found[0].passage.id] == [4, 3]
    weird = retriever.search("yankovic")[0].passage
    assert (weird.id, weird.title, weird.text) == ("w", '"Weird Al" Yankovic', "A musician. He parodies.")
    assert retriever.search("empty")[0].passage.text == ""
    retriever.close()
