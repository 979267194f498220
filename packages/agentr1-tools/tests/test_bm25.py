import math

import pytest
from agentr1_tools.bm25 import Bm25, words

DOCUMENTS = [["cat", "sat", "mat"], ["cat", "cat", "dog", "ran"], ["bird"], []]


def test_words_are_lower_case_and_whole():
    assert words("The Cat's 2nd-best MAT: é") == ["the", "cat", "s", "2nd", "best", "mat", "é"]


def test_scores_are_the_formula_of_lucene():
    average = sum(map(len, DOCUMENTS)) / len(DOCUMENTS)

    def weight(word, document):
        holding = sum(word in other for other in DOCUMENTS)
        rarity = math.log(1 + (len(DOCUMENTS) - holding + 0.5) / (holding + 0.5))
        count = document.count(word)
        return rarity * count / (count + 1.5 * (1 - 0.75 + 0.75 * len(document) / average))

    scores = Bm25(DOCUMENTS).scores("a cat, a CAT and a mat")
    assert scores.tolist() == pytest.approx([weight("cat", d) + weight("mat", d) for d in DOCUMENTS])


def test_the_best_come_first_and_ties_by_place():
    index = Bm25([["x", "y"], ["x", "z"], ["x", "y"], ["w"]])
    assert [place for place, _ in index.best("y", 5)] == [0, 2]
    assert [place for place, _ in index.best("x y", 2)] == [0, 2]
    assert index.best("nothing", 3) == index.best("y", 0) == []
