import math
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.webshop.catalogue import find_catalogue, open_catalogue
from agentr1_envs.webshop.search_index import build_index, stored_length


def test_rankings_and_scores_are_those_of_the_published_search(golden: Any, small_set: Path) -> None:
    catalogue = open_catalogue(find_catalogue(small_set))
    asins = list(catalogue.by_asin)
    queries = golden("search")["queries"]
    assert len(queries) == 294
    for query in queries:
        documents, scores = catalogue.index.search(query["query"].lower(), 50)
        assert [asins[number] for number in documents] == [asin for asin, _ in query["hits"]], query["query"]
        assert scores == pytest.approx([score for _, score in query["hits"]], abs=6e-5)


def test_scores_follow_the_formula() -> None:
    index = build_index(["red shoe red", "blue shoe", "green hat green tie tie"])
    documents, scores = index.search("red red nothing", 5)
    idf = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    assert documents == [0]
    assert scores == pytest.approx([2 * idf * 2 / (2 + 0.9 * (0.6 + 0.4 * 3 / (10 / 3)))], rel=1e-6)


def test_equal_scores_come_in_document_order_and_no_more_than_asked() -> None:
    index = build_index(["hat"] * 9 + ["shoe"])
    assert index.search("hat", 4)[0] == [0, 1, 2, 3]
    assert index.search("hat", 99)[0] == list(range(9))
    assert index.search("the", 4) == ([], [])


def test_nothing_can_be_indexed_and_nothing_is_found() -> None:
    assert build_index([]).search("hat", 4) == ([], [])
    assert build_index(["", "the"]).search("hat", 4) == ([], [])


@pytest.mark.parametrize(
    ("length", "stored"), [(0, 0), (23, 23), (39, 39), (40, 40), (41, 40), (42, 42), (107, 104), (300, 280), (312, 312)]
)
def test_lengths_keep_four_bits(length: int, stored: int) -> None:
    assert stored_length(length) == stored
