from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.datasets import PAPERS
from agentr1_envs.errors import DataRowError
from agentr1_envs.loader import load_tasks
from agentr1_envs.paper_data import PaperTask, read_paper_task
from agentr1_envs.rows import Row


def read(**fields: Any) -> PaperTask:
    return read_paper_task(Row(Path("rows.jsonl"), 1, fields), "test")


def test_ids_or_titles_are_wanted() -> None:
    by_id = read(id="a", query="q", gold=[3, "P4", 3], description="More.", date="2023-12-14", source="S")
    assert (by_id.task_id, by_id.question, by_id.kind) == ("a", "q\n\nMore.", "S")
    assert (by_id.gold, by_id.gold_titles, by_id.answers, by_id.cutoff) == (("3", "P4"), (), ("3", "P4"), "20231214")
    as_published = read(question="q", answer=["One", "Two"], source_meta={"published_time": "20240105"})
    assert (as_published.gold_titles, as_published.answers, as_published.cutoff) == (("One", "Two"),) * 2 + (
        "20240105",
    )


def test_the_paper_that_asks_is_hidden() -> None:
    assert read(query="q", gold=[1], citing="D18-1", year=2018).hidden == ("D18-1",)
    tutorial = read(query="Papers that X would put on its reading list: Old: and New", gold=[1])
    assert tutorial.hidden_titles == ("Old: and New",)


def test_a_sentence_says_what_is_asked() -> None:
    task = read(query="As shown in[CITE].", gold=[1], kind="citation context")
    assert task.question == "Find the papers that are cited in place of [CITE] in this sentence: As shown in[CITE]."


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"query": "q"}, "gold"), ({"query": " ", "gold": [1]}, "query"), ({"query": "q", "gold": 1}, "gold")],
)
def test_a_bad_row_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(DataRowError, match=f"line 1, field '{field}'"):
        read(**fields)


def test_both_real_sets_are_read_whole(shared_data: Path) -> None:
    papers = load_tasks(PAPERS, "test", shared_data / "papers")
    assert len(papers) == 552
    kinds = [task.kind for task in papers]
    assert [kinds.count(kind) for kind in dict.fromkeys(kinds)] == [50, 95, 407]
    assert sum(bool(task.cutoff) for task in papers if isinstance(task, PaperTask)) == 407
    assert sum(bool(task.hidden_titles) for task in papers if isinstance(task, PaperTask)) == 95
    counts = {split: len(load_tasks(PAPERS, split, shared_data / "acl_citegraph")) for split in PAPERS.splits}
    assert counts == {"train": 793, "test": 663}
    first = load_tasks(PAPERS, "test", shared_data / "acl_citegraph")[0]
    assert isinstance(first, PaperTask)
    assert (first.hidden, first.cutoff) == (("D18-1459",), "2018")
