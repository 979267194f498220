import json

import pytest
from agentr1_tools import ToolBox, ToolCall, load_tool
from agentr1_tools.errors import ToolConfigError, ToolOpenError
from agentr1_tools.paper_file import Paper
from agentr1_tools.paper_index import PaperIndex
from agentr1_tools.paper_search import PaperSearch

INDEX = PaperIndex([Paper(str(n), f"Paper {n}", f"About harbour number {n}.", "2019") for n in range(15)])


def test_ten_papers_are_found_with_id_title_and_abstract():
    with ToolBox([PaperSearch(index=INDEX, timeout=10)]) as box:
        result = box.call(ToolCall("paper_search", {"query": "harbour number 7"}))
    assert result.ok
    assert result.data["query"] == "harbour number 7"
    assert len(result.data["papers"]) == 10
    first = result.data["papers"][0]
    assert first == {
        "id": "7",
        "title": "Paper 7",
        "abstract": "About harbour number 7.",
        "date": "2019",
        "score": first["score"],
    }
    assert result.text.startswith("[7] Paper 7\nAbout harbour number 7.\n\n[")


def test_nothing_found_is_a_success():
    result = PaperSearch(index=INDEX).execute({"query": "quantum"})
    assert (result["data"]["papers"], result["text"]) == ([], "No paper found for 'quantum'.")


def test_what_is_kept_may_change_so_it_is_not_cached():
    allowed = {"7"}
    search = PaperSearch(index=INDEX, keep=lambda paper: paper.id in allowed, timeout=10)
    with ToolBox([search]) as box:
        call = ToolCall("paper_search", {"query": "harbour"})
        assert [paper["id"] for paper in box.call(call).data["papers"]] == ["7"]
        allowed.add("9")
        assert [paper["id"] for paper in box.call(call).data["papers"]] == ["7", "9"]
    assert PaperSearch(index=INDEX).cacheable


def test_it_is_installed_and_opens_a_file(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"id": "x", "title": "Harbours", "abstract": "A text."}))
    search = load_tool("paper_search", corpus=path)
    assert search.execute({"query": "harbours"})["data"]["papers"][0]["id"] == "x"


def test_real_papers_are_found_by_their_titles(shared):
    index = PaperIndex.load(shared / "data" / "acl_citegraph" / "corpus.jsonl")
    search = PaperSearch(index=index)
    assert len(index.papers) == 3516
    first = [search.execute({"query": paper.title})["data"]["papers"][0]["title"] for paper in index.papers[::100]]
    right = sum(found == paper.title for found, paper in zip(first, index.papers[::100], strict=True))
    assert right >= 0.9 * len(first)


def test_a_wrong_set_up_is_told():
    with pytest.raises(ToolConfigError, match="not both"):
        PaperSearch("x.jsonl", index=INDEX)
    with pytest.raises(ToolConfigError, match="max_results is 0"):
        PaperSearch(index=INDEX, max_results=0)
    with pytest.raises(ToolOpenError, match="give corpus="):
        ToolBox([PaperSearch()]).open()
    with pytest.raises(ToolOpenError, match="no corpus at"):
        ToolBox([PaperSearch("/nowhere/corpus.jsonl")]).open()
