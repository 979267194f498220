import json
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.errors import DataNotFoundError, SettingError
from agentr1_envs.paper_data import PaperTask
from agentr1_envs.paper_library import Library, is_open
from agentr1_envs.tool_env import Paper

PAPERS = [
    {"id": 1, "title": "First", "abstract": "a", "year": 2017},
    {"id": 2, "title": "Second", "abstract": "b", "year": 2019},
    {"id": 3, "title": "Third", "abstract": "c"},
]


def library(folder: Path, *rows: dict[str, Any], kind: str | None = None) -> Library:
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, PAPERS)))
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return Library("test", folder, None, kind, "refuse", None)


def gold(source: Library) -> frozenset[str]:
    task = source()[0]
    assert isinstance(task, PaperTask)
    return source.gold(task)


def test_wanted_papers_are_compared_by_the_letters_of_their_titles(tmp_path: Path) -> None:
    assert gold(library(tmp_path, {"query": "q", "gold": [1, 3]})) == {"first", "third"}
    named = {"query": "q", "answer": ["First!", "Not in the corpus"]}
    assert gold(library(tmp_path, named)) == {"first", "notinthecorpus"}


def test_papers_after_the_date_do_not_count(tmp_path: Path) -> None:
    assert gold(library(tmp_path, {"query": "q", "gold": [1, 2, 3], "year": 2018})) == {"first", "third"}
    assert gold(library(tmp_path, {"query": "q", "answer": ["Second", "First"], "date": "20180501"})) == {"first"}


def test_what_a_question_may_find() -> None:
    task = PaperTask("t", "test", "q", ("1",), cutoff="2018", hidden=("7",), hidden_titles=("My Own",))
    for paper, may in (
        (Paper("1", "A", "", "2018"), True),
        (Paper("1", "A", "", ""), True),
        (Paper("1", "A", "", "2019"), False),
        (Paper("7", "A", "", "2010"), False),
        (Paper("8", "my own", "", "2010"), False),
    ):
        assert is_open(task, paper) is may


def test_an_id_the_corpus_lacks_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"lacks the papers \['9'\]"):
        gold(library(tmp_path, {"query": "q", "gold": [1, 9]}))


def test_questions_of_one_kind(tmp_path: Path) -> None:
    rows = ({"id": "a", "query": "q", "gold": [1], "kind": "x"}, {"id": "b", "query": "q", "gold": [1], "source": "y"})
    assert library(tmp_path, *rows, kind="y")().task_ids == ("b",)
    with pytest.raises(SettingError, match=r"kind='z'; there are \['x', 'y'\]"):
        library(tmp_path, *rows, kind="z")()


def test_a_corpus_must_be_somewhere(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text(json.dumps({"query": "q", "gold": [1]}))
    with pytest.raises(DataNotFoundError, match=r"no corpus\.jsonl beside it"):
        Library("test", tmp_path, None, None, "refuse", None).corpus_path()
    with pytest.raises(DataNotFoundError, match="Bring a file of questions"):
        Library("test", tmp_path / "nowhere", None, None, "refuse", None)
