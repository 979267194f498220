from typing import Any

import pytest
from agentr1_envs.webshop.analysis import STOP_WORDS, terms, tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("can't 3.14 1,000 u.s.a. a:b x_y _", ["can't", "3.14", "1,000", "u.s.a", "a:b", "x_y"]),
        ("wi-fi 9v/5v 'quoted' 5' 6\"", ["wi", "fi", "9v", "5v", "quoted", "5", "6"]),
        ("a.b 1.a a,b 1;2", ["a.b", "1", "a", "a", "b", "1;2"]),
        ("caf\u00e9 cafe\u0301 na\u00efve", ["caf\u00e9", "cafe\u0301", "na\u00efve"]),
        ("\u7425\u73c0\u3072\u30ab\u30bf\u30ab\u30ca", ["\u7425", "\u73c0", "\u3072", "\u30ab\u30bf\u30ab\u30ca"]),
        ("\u2714\ufe0f ok \u2122\u2605\u2606", ["\u2714\ufe0f", "ok", "\u2122", "\u2605"]),
        ("a\U0001f468\u200d\U0001f4bcb", ["a", "\U0001f468\u200d\U0001f4bc", "b"]),
        ("\uff76\uff9f\uff9f", ["\uff76\uff9f\uff9f"]),
        ("\u00bd \u00b0 \u3010x\u3011 \u2013", ["x"]),
    ],
)  # fmt: skip
def test_words_are_cut_by_unicodes_rules(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


def test_a_word_without_end_is_cut() -> None:
    assert [len(token) for token in tokens("x" * 600)] == [255, 255, 90]


def test_possessives_and_stop_words_go_before_stemming() -> None:
    assert terms("The women's dresses and men\u2019s shoes at their best") == ["women", "dress", "men", "shoe", "best"]
    assert len(STOP_WORDS) == 33
    assert terms("this willing") == ["will"]


def test_queries_are_analysed_as_lucene_does(golden: Any) -> None:
    for query in golden("search")["queries"]:
        assert terms(query["query"].lower()) == query["tokens"], query["query"]
