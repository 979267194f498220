import pytest
from agentr1_envs.retrieval_scores import score_ranking


def test_precision_recall_and_f1_in_closed_form() -> None:
    scores = score_ranking(["a", "x", "b", "y"], {"a", "b", "c"})
    assert (scores.precision, scores.recall) == (2 / 4, 2 / 3)
    assert scores.f1 == pytest.approx(2 * (1 / 2) * (2 / 3) / (1 / 2 + 2 / 3))
    assert scores.recall_at == (2 / 3, 2 / 3, 2 / 3)


def test_recall_at_k_looks_at_the_first_k() -> None:
    ranked = [str(n) for n in range(120)]
    scores = score_ranking(ranked, {"19", "20", "49", "50", "99", "100", "elsewhere", "nowhere"})
    assert scores.recall_at == (1 / 8, 3 / 8, 5 / 8)
    assert scores.recall == 6 / 8
    assert scores.precision == 6 / 120


def test_an_item_counts_once() -> None:
    assert score_ranking(["a", "a", "a", "x"], {"a"}) == score_ranking(["a", "x"], ["a", "a"])


def test_nothing_found_or_nothing_wanted_scores_nothing() -> None:
    for ranked, gold in (([], {"a"}), (["x"], {"a"}), (["x"], set()), ([], set())):
        scores = score_ranking(ranked, gold)
        assert (scores.precision, scores.recall, scores.f1, scores.recall_at) == (0.0, 0.0, 0.0, (0.0, 0.0, 0.0))
