from agentr1_envs.paper_pool import FoundPaper, PaperPool, read_found, state_text
from agentr1_envs.paper_rules import PaperRules


def paper(identity: str, title: str = "", abstract: str = "text") -> FoundPaper:
    return FoundPaper(identity, title or f"Title {'abcdefghij'[int(identity)]}", abstract, "2019", 1.0)


def test_new_papers_are_those_not_known_and_relevant_enough() -> None:
    pool = PaperPool()
    assert pool.add([paper("0"), paper("1"), paper("2")], [0.5, 0.009, 0.01], 0.01) == [paper("0"), paper("2")]
    assert (len(pool), "1" in pool) == (2, False)
    assert pool.add([paper("0"), paper("1")], [0.9, 0.2], 0.01) == [paper("1")]
    assert pool.score_of(paper("0")) == 0.9
    pool.add([paper("0")], [0.3], 0.01)
    assert pool.score_of(paper("0")) == 0.9


def test_two_of_one_title_are_one_paper() -> None:
    pool = PaperPool()
    assert pool.add([paper("0", "On Bread"), paper("1", "on bread!")], [0.2, 0.8], 0.01) == [paper("0", "On Bread")]
    assert [found.id for found in pool.ranked(0.8)] == ["0"]


def test_the_ranking_goes_by_score_then_by_discovery() -> None:
    pool = PaperPool()
    pool.add([paper(str(n)) for n in range(5)], [0.5, 0.7, 0.5, 0.49, 1.0], 0.01)
    assert [found.id for found in pool.ranked(0.5)] == ["4", "1", "0", "2"]
    pool.expand("1")
    assert [found.id for found in pool.ranked(expanded=True)] == ["1"]
    assert [found.id for found in pool.ranked(expanded=False)] == ["4", "0", "2", "3"]
    assert pool.is_expanded("1")
    assert not pool.is_expanded("4")


def test_the_state_shows_the_best_of_both_kinds_and_cuts_abstracts() -> None:
    pool = PaperPool()
    pool.add([paper(str(n), abstract="one two three four") for n in range(5)], [0.1, 0.2, 0.3, 0.4, 0.5], 0.01)
    pool.expand("0")
    rules = PaperRules(shown_new=2, shown_expanded=1, abstract_words=3)
    assert state_text("Why?", pool, rules, ["a b", "c"], ["Error."]) == (
        "Question: Why?\n\nQueries so far: a b; c\n\nError.\n\n"
        "Expanded papers (1 of 1):\n\n[0] Title a\none two three ...\n\n"
        "New papers (2 of 4):\n\n[4] Title e\none two three ...\n\n[3] Title d\none two three ..."
    )
    assert state_text("Why?", PaperPool(), rules) == "Question: Why?\n\nExpanded papers: none\n\nNew papers: none"


def test_reading_the_data_of_a_tool() -> None:
    data = {"id": "0", "title": "Title a", "abstract": "text", "date": "2019", "score": 1}
    assert read_found([data]) == [paper("0")]
