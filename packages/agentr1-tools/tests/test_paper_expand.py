from agentr1_tools import ToolBox, ToolCall, load_tool
from agentr1_tools.paper_expand import PaperExpand
from agentr1_tools.paper_file import Paper
from agentr1_tools.paper_index import PaperIndex

CITED = tuple(str(n) for n in range(1, 40))
INDEX = PaperIndex([Paper("0", "Survey", "All.", "2024", CITED), *(Paper(n, f"Paper {n}", "One.") for n in CITED)])


def ids(result):
    return [paper["id"] for paper in result["data"]["papers"]]


def test_at_most_thirty_references_in_the_papers_order():
    expand = PaperExpand(index=INDEX)
    assert ids(expand.execute({"paper_id": "0"})) == list(CITED[:30])
    assert ids(expand.execute({"paper_id": 0})) == list(CITED[:30])
    assert ids(PaperExpand(index=INDEX, keep=lambda paper: int(paper.id) % 2 == 0).execute({"paper_id": "0"})) == [
        str(n) for n in range(2, 40, 2)
    ]


def test_no_reference_is_a_success_and_an_unknown_id_is_not():
    with ToolBox([PaperExpand(index=INDEX, timeout=10)]) as box:
        none = box.call(ToolCall("paper_expand", {"paper_id": "[3]"}))
        unknown = box.call(ToolCall("paper_expand", {"paper_id": "X1"}))
    assert (none.ok, none.data["papers"], none.text) == (True, [], "No reference of [3] is in the corpus.")
    assert (unknown.error, unknown.data, unknown.source) == ("UNKNOWN_PAPER", {"paper_id": "X1"}, "paper_expand")
    assert "no paper 'X1'" in unknown.text


def test_references_are_scored_for_the_query_of_the_moment():
    asked = ["paper 7"]
    expand = PaperExpand(index=INDEX, query=lambda: asked[0])
    assert not expand.cacheable
    for query, best in (("paper 7", "7"), ("paper 11", "11")):
        asked[0] = query
        papers = expand.execute({"paper_id": "0"})["data"]["papers"]
        assert max(papers, key=lambda paper: paper["score"])["id"] == best
    assert {paper["score"] for paper in PaperExpand(index=INDEX).execute({"paper_id": "0"})["data"]["papers"]} == {0.0}


def test_it_is_installed_and_reads_both_real_graphs(shared):
    acl = load_tool("paper_expand", corpus=shared / "data" / "acl_citegraph" / "corpus.jsonl")
    acl.open()
    cited = [paper for paper in acl.index.papers if paper.references]
    assert sum(len(acl.index.references(paper)) for paper in cited) == 11736
    papers = load_tool("paper_expand", corpus=shared / "data" / "papers" / "corpus.jsonl")
    papers.open()
    assert len(papers.index.papers) == 9293
    assert sum(len(paper.references) for paper in papers.index.papers) == 1008
    titles = [paper["title"] for paper in papers.execute({"paper_id": 186})["data"]["papers"]]
    assert len(titles) > 1
    assert "Interpretability and Analysis in Neural NLP" not in titles
