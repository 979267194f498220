import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.paper_pool import FoundPaper
from agentr1_envs.paper_scorers import by_embedding, by_retrieval, find_scorer, scores_of


def found(score: float, title: str = "x") -> FoundPaper:
    return FoundPaper("0", title, "", "", score)


def test_retrieval_is_the_share_of_the_best_of_the_list() -> None:
    assert by_retrieval("q", [found(8.0), found(2.0), found(0.0)]) == [1.0, 0.25, 0.0]
    assert by_retrieval("q", [found(0.0)]) == [0.0]
    assert by_retrieval("q", []) == []


def test_embedding_is_the_cosine_of_question_and_paper() -> None:
    scorer = by_embedding(lambda texts: [[float("tide" in text), float("bee" in text)] for text in texts])
    papers = [found(0.0, "tide"), found(0.0, "bee"), found(0.0, "tide and bee")]
    assert scorer("tide", papers) == pytest.approx([1.0, 0.0, 0.5**0.5])
    opposite = by_embedding(lambda texts: [[1.0], *([-1.0] for _ in texts[1:])])
    assert opposite("q", [found(0.0)]) == [0.0]


def test_scorers_by_name() -> None:
    assert find_scorer("retrieval", None) is by_retrieval
    assert find_scorer("agentr1_envs.paper_scorers:by_retrieval", None) is by_retrieval
    assert find_scorer(by_retrieval, None) is by_retrieval
    assert callable(find_scorer("embedding", lambda texts: [[1.0] for _ in texts]))
    for name, problem in (
        ("embedding", "needs encoder="),
        ("retrieve", "Did you mean 'retrieval'"),
        ("math:none", "cannot be imported"),
    ):
        with pytest.raises(SettingError, match=problem):
            find_scorer(name, None)


def test_what_a_scorer_returns_is_checked() -> None:
    assert scores_of(lambda question, papers: (0, 1), "q", [found(1.0)] * 2) == [0.0, 1.0]
    assert scores_of(lambda question, papers: [5.0], "q", []) == []
    for bad in ([0.5], [0.5, 1.5], [0.5, float("nan")]):
        with pytest.raises(SettingError, match="one score in"):
            scores_of(lambda question, papers, bad=bad: bad, "q", [found(1.0)] * 2)
