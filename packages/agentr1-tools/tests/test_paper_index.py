import json

import numpy as np
import pytest
from agentr1_tools.errors import ToolConfigError
from agentr1_tools.paper_file import Paper
from agentr1_tools.paper_index import PaperIndex, find_encoder, unit_vectors

PAPERS = [
    Paper("a", "Tide forecasting", "With graph networks.", "2019", ("b", "gone", "c")),
    Paper("b", "Sea levels", "Graph networks for harbours.", "2020"),
    Paper("c", "Bread", "How to bake it.", "2021", ("a",)),
    Paper("d", "BREAD!", "Another text.", "2022"),
]
AXES = ("tide", "graph", "bread")


def by_axes(texts):
    """One axis a word: a text points to the words it holds."""
    return [[float(axis in text.lower()) for axis in AXES] for text in texts]


@pytest.fixture(scope="module")
def index():
    return PaperIndex(PAPERS)


def test_title_and_abstract_are_searched_best_first(index):
    hits = index.search("graph networks for harbours")
    assert [hit.paper.id for hit in hits] == ["b", "a"]
    assert hits[0].score > hits[1].score > 0
    assert index.search("quantum") == []
    assert len(index.search("graph", k=1)) == 1


def test_what_may_not_be_shown_makes_room_for_others(index):
    (best,) = index.search("bread", k=1)
    (next_best,) = index.search("bread", k=1, keep=lambda paper: paper.id != best.paper.id)
    assert {best.paper.id, next_best.paper.id} == {"c", "d"}


def test_references_are_those_of_the_corpus_in_order(index):
    a = index.find("a")
    assert [paper.id for paper in index.references(a)] == ["b", "c"]
    assert [paper.id for paper in index.references(a, k=1)] == ["b"]
    assert [paper.id for paper in index.references(a, k=1, keep=lambda paper: paper.id != "b")] == ["c"]
    assert index.references(index.find("b")) == []
    assert index.find("nobody") is None


def test_a_title_finds_its_first_paper(index):
    assert index.by_title("bread").id == "c"
    assert index.by_title("Tide-Forecasting").id == "a"
    assert index.by_title("nothing") is None


def test_a_rating_is_the_score_of_the_search(index):
    hits = {hit.paper.id: hit.score for hit in index.search("graph networks")}
    assert index.rate("graph networks", PAPERS[:3]) == pytest.approx([hits["a"], hits["b"], 0.0])
    assert index.rate("graph", [Paper("new", "Graph", "")]) == [0.0]


def test_an_encoder_searches_by_the_cosine():
    index = PaperIndex(PAPERS, by_axes)
    hits = index.search("tide")
    assert [(hit.paper.id, round(hit.score, 4)) for hit in hits] == [("a", round(1 / np.sqrt(2), 4))]
    assert [hit.paper.id for hit in index.search("a graph of bread")] == ["b", "c", "d", "a"]
    assert index.rate("graph", [PAPERS[2], PAPERS[1]]) == pytest.approx([0.0, 1.0])


def test_vectors_have_length_one():
    vectors = unit_vectors(lambda texts: [[3.0, 4.0], [0.0, 0.0]], ["x", "y"])
    assert np.allclose(vectors, [[0.6, 0.8], [0.0, 0.0]])
    for bad in ([[1.0]], [1.0, 2.0], [[float("nan")], [1.0]]):
        with pytest.raises(ToolConfigError, match="one row of finite numbers"):
            unit_vectors(lambda texts, bad=bad: bad, ["x", "y"])


def test_encoders_by_name():
    assert find_encoder("math:sqrt") is __import__("math").sqrt
    assert find_encoder(by_axes) is by_axes
    assert find_encoder(None) is None
    for name, problem in (("sqrt", "module:function"), ("math:none", "imported"), ("math:pi", "float, not a function")):
        with pytest.raises(ToolConfigError, match=problem):
            find_encoder(name)


def test_a_file_is_opened_once(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"id": 1, "title": "x", "abstract": "y"}))
    assert PaperIndex.load(path) is PaperIndex.load(str(path))
    assert PaperIndex.load(path, lambda texts: [[1.0]] * len(texts)) is not PaperIndex.load(path)


def test_an_index_needs_papers_with_ids_of_their_own():
    with pytest.raises(ToolConfigError, match="no paper"):
        PaperIndex([])
    with pytest.raises(ToolConfigError, match="same id"):
        PaperIndex([PAPERS[0], PAPERS[0]])
