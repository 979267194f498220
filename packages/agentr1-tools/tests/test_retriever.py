import pytest
from agentr1_tools.errors import ToolError
from agentr1_tools.retriever import HttpRetriever, as_document
from agentr1_tools.wiki_index import Passage, title_and_text


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"Oslo"\nA city.', "Oslo", "A city."),
        ("Oslo\nA city.\nA fjord.", "Oslo", "A city.\nA fjord."),
        ('""Heroes" (album)"\nAn album.', '"Heroes" (album)', "An album."),
        ('"Oslo"\n', "Oslo", ""),
        ("Oslo", "Oslo", "Oslo"),
        ('"', '"', '"'),
        ("", "", ""),
    ],
)
def test_contents_are_taken_apart(contents, title, text):
    assert title_and_text(contents) == (title, text)


def test_a_document_reads_back_as_its_passage():
    passage = Passage("p", 'The "Old" Town', ("It is old.", "It has a harbour."))
    document = as_document(passage)
    assert title_and_text(document["contents"]) == (passage.title, passage.text)
    assert (document["id"], document["title"], document["text"]) == ("p", passage.title, passage.text)


def test_all_shapes_of_a_hit_are_read(retriever):
    hits = [{"document": {"contents": "A\na"}, "score": "2.5"}, {"title": "B", "text": "b"}, {}]
    retriever.answer = lambda body: (200, {"result": [hits]})
    found = HttpRetriever(f"{retriever.url}/retrieve/", 10).search("q", 2)
    assert retriever.seen == [("/retrieve", {"queries": ["q"], "topk": 2, "return_scores": True})]
    assert [(hit.passage.id, hit.passage.title, hit.passage.text, hit.score) for hit in found] == [
        (0, "A", "a", 2.5),
        (1, "B", "b", 0.0),
    ]


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"result": []}, {"result": [5]}, {"result": [[5]]}, {"result": [[{"document": {}}]]}]
)
def test_any_other_answer_is_NETWORK_ERROR(retriever, answer):
    for status, problem in ((200, "answer cannot be read"), (503, "answered 503")):
        retriever.answer = lambda body, status=status: (status, answer)
        with pytest.raises(ToolError, match=problem) as caught:
            HttpRetriever(retriever.url, 10).search("q", 2)
        assert caught.value.code == "NETWORK_ERROR"
