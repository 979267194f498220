import json
import sys
import threading
import time

import pytest
from agentr1_tools import ToolBox, ToolCall, load_tool
from agentr1_tools.errors import MissingExtraError, ToolConfigError, ToolOpenError
from agentr1_tools.extras import EXTRAS
from agentr1_tools.wiki_index import Passage, WikiIndex
from agentr1_tools.wiki_search import WikiSearch

INDEX = WikiIndex(
    [Passage(number, f"Town {number}", (f"Town {number} has a harbour.", "It is old.")) for number in range(9)]
)


def test_data_is_a_list_of_passages_and_text_is_numbered(open_box):
    box = open_box([WikiSearch(index=INDEX, timeout=10)])
    result = box.call(ToolCall("wiki_search", {"query": "town 3"}))
    assert len(result.data) == 5
    assert result.data[0] == {
        "title": "Town 3",
        "text": "Town 3 has a harbour. It is old.",
        "score": pytest.approx(result.data[0]["score"]),
        "id": 3,
    }
    assert result.text.startswith("[1] Town 3\nTown 3 has a harbour. It is old.\n\n[2] Town")


def test_max_results_is_the_calls_or_the_configured_one(open_box):
    box = open_box([WikiSearch(index=INDEX, max_results=2, timeout=10)])
    assert len(box.call(ToolCall("wiki_search", {"query": "town"})).data) == 2
    assert len(box.call(ToolCall("wiki_search", {"query": "town", "max_results": 3})).data) == 3
    assert box.call(ToolCall("wiki_search", {"query": "town", "max_results": 21})).error == "INVALID_ARGUMENT"
    assert box.call(ToolCall("wiki_search", {"query": ""})).error == "INVALID_ARGUMENT"


def test_nothing_found_is_a_success_that_says_so(open_box):
    result = open_box([WikiSearch(index=INDEX, timeout=10)]).call(ToolCall("wiki_search", {"query": "volcano"}))
    assert (result.ok, result.data) == (True, [])
    assert result.text == "No passage found for 'volcano'."


def test_a_corpus_file_through_the_registry(open_box, tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"title": "Oslo", "text": "Oslo is a city."}\n', encoding="utf-8")
    box = open_box([load_tool("wiki_search", corpus=path, timeout=10)])
    assert box.call(ToolCall("wiki_search", {"query": "oslo"})).data[0]["title"] == "Oslo"


def test_a_wrong_configuration_is_said():
    with pytest.raises(ToolConfigError, match="not several"):
        WikiSearch(corpus="x", retriever_url="http://y")
    with pytest.raises(ToolConfigError, match="legal are 1 to 20"):
        WikiSearch(index=INDEX, max_results=0)
    with pytest.raises(ToolConfigError, match="unexpected keyword"):
        load_tool("wiki_search", corpsu="x")
    with pytest.raises(ToolConfigError, match="is no address of a server"):
        WikiSearch(retriever_url="y")
    with pytest.raises(ToolConfigError, match="retriever is 'sparse'; legal are 'bm25' and 'dense'"):
        WikiSearch("x", retriever="sparse")
    with pytest.raises(ToolConfigError, match='model= and cache= are for retriever="dense"'):
        WikiSearch("x", model="y")
    with pytest.raises(ToolOpenError, match="nothing to search"):
        ToolBox([WikiSearch()]).open()
    with pytest.raises(ToolOpenError, match="no corpus at"):
        ToolBox([WikiSearch("nowhere.jsonl")]).open()


def test_the_retriever_protocol(open_box, retriever):
    retriever.answer = lambda body: (
        200,
        {
            "result": [
                [
                    {"document": {"id": "7", "contents": '"Oslo"\nOslo is a city.\nIt has a fjord.'}, "score": 2.5},
                    {"document": {"title": "Bergen", "text": "Bergen is wet."}, "score": 1},
                ]
            ]
        },
    )
    result = open_box([WikiSearch(retriever_url=f"{retriever.url}/", timeout=10)]).call(
        ToolCall("wiki_search", {"query": "norway"})
    )
    assert retriever.seen == [("/retrieve", {"queries": ["norway"], "topk": 5, "return_scores": True})]
    assert result.data == [
        {"title": "Oslo", "text": "Oslo is a city.\nIt has a fjord.", "score": 2.5, "id": "7"},
        {"title": "Bergen", "text": "Bergen is wet.", "score": 1.0, "id": 1},
    ]


def test_calls_that_meet_ask_the_retriever_once(retriever):
    def answer(body):
        hits = [[{"contents": f'"{query} {rank}"\nText.'} for rank in range(body["topk"])] for query in body["queries"]]
        return 200, {"result": hits}

    retriever.answer = answer
    search = WikiSearch(retriever_url=retriever.url, timeout=10)
    batch = [{"query": "oslo"}, {"query": "bergen", "max_results": 1}, {"query": "oslo", "max_results": 7}]
    together = search.execute_batch(batch)
    assert [seen[1]["queries"] for seen in retriever.seen] == [["oslo", "bergen", "oslo"]]
    assert [len(result["data"]) for result in together] == [5, 1, 7]
    assert together == [search.execute(params) for params in batch]
    search.close()


def test_a_batch_of_the_local_corpus_answers_as_single_calls_do():
    search = WikiSearch(index=INDEX)
    batch = [{"query": f"town {number}", "max_results": number % 5 + 1} for number in range(9)] + [{"query": "volcano"}]
    assert search.execute_batch(batch) == [search.execute(params) for params in batch]
    assert (search.max_batch, WikiSearch(retriever_url="http://127.0.0.1:1").max_batch) == (16, 64)


def test_documents_without_scores_are_read(open_box, retriever):
    retriever.answer = lambda body: (200, {"result": [[{"contents": '"Oslo"\nA city.'}]]})
    result = open_box([WikiSearch(retriever_url=f"{retriever.url}/retrieve", timeout=10)]).call(
        ToolCall("wiki_search", {"query": "norway"})
    )
    assert result.data == [{"title": "Oslo", "text": "A city.", "score": 0.0, "id": 0}]
    assert retriever.seen[0][0] == "/retrieve"


@pytest.mark.parametrize(
    "answer",
    [
        (500, {}),
        (200, b"no json"),
        (200, {"results": []}),
        (200, {"result": [[{"document": {}}]]}),
        (200, []),
        (200, {"result": []}),
    ],
)
def test_a_retriever_that_fails_is_NETWORK_ERROR(open_box, retriever, answer):
    retriever.answer = lambda body: answer
    box = open_box([WikiSearch(retriever_url=retriever.url, timeout=10)])
    result = box.call(ToolCall("wiki_search", {"query": "norway"}))
    assert result.error == "NETWORK_ERROR"


def test_no_retriever_is_NETWORK_ERROR(open_box, retriever):
    retriever.server_close()
    box = open_box([WikiSearch(retriever_url=retriever.url, timeout=10)])
    result = box.call(ToolCall("wiki_search", {"query": "norway"}))
    assert result.error == "NETWORK_ERROR"


def test_a_slow_retriever_is_TIMEOUT_at_the_limit(open_box, retriever):
    over = threading.Event()
    retriever.answer = lambda body: (over.wait(12), (200, {"result": [[]]}))[1]
    box = open_box([WikiSearch(retriever_url=retriever.url)])
    started = time.perf_counter()
    assert box.call(ToolCall("wiki_search", {"query": "norway"})).error == "TIMEOUT"
    assert 0.45 < time.perf_counter() - started < 11
    over.set()


def test_dense_retrieval_needs_its_extra_a_model_and_a_corpus(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'agentr1-tools\[dense\]'"):
        WikiSearch("x", retriever="dense", model="y")
    monkeypatch.setitem(EXTRAS, "dense", ())
    with pytest.raises(ToolConfigError, match="needs model=, the folder of a sentence-transformers model"):
        WikiSearch("x", retriever="dense")
    with pytest.raises(ToolConfigError, match="searches a local corpus; give corpus= too"):
        WikiSearch(retriever_url="http://y", retriever="dense", model="y")
    assert WikiSearch("x", retriever="dense", model="y").timeout == 2.0


def test_a_retriever_of_this_package_shows_the_model_what_the_corpus_would(open_box, start_server, tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"title": passage.title, "sentences": passage.sentences} for passage in INDEX.passages]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    server = start_server("serve-retriever", "--corpus", str(path), "--port", "0")
    here = open_box([WikiSearch(path, timeout=10)])
    there = open_box([load_tool("wiki_search", retriever_url=server.url, timeout=10)])
    for arguments in ({"query": "town 3"}, {"query": "harbour", "max_results": 2}, {"query": "volcano"}):
        expected, result = (box.call(ToolCall("wiki_search", arguments)) for box in (here, there))
        assert (result.data, result.text) == (expected.data, expected.text)
    server.process.kill()
    server.process.wait()
    assert there.call(ToolCall("wiki_search", {"query": "town 4"})).error == "NETWORK_ERROR"


def test_the_limits_of_the_two_ways():
    assert WikiSearch(index=INDEX).timeout == 0.3
    assert WikiSearch(retriever_url="http://127.0.0.1:1").timeout == 0.5
    assert WikiSearch(retriever_url="http://127.0.0.1:1", timeout=3).timeout == 3
