import json

import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.samples import small_library
from agentr1_envs.samples.small_library import CORPUS_PATH, SPLITS, papers, write_corpus


def test_the_corpus_file_is_what_the_generator_writes(tmp_path) -> None:
    assert write_corpus(tmp_path / "corpus.jsonl") == len(papers()) == 408
    assert (tmp_path / "corpus.jsonl").read_bytes() == CORPUS_PATH.read_bytes()


def test_papers_cite_earlier_ones_and_titles_differ() -> None:
    rows = [json.loads(line) for line in CORPUS_PATH.read_text(encoding="utf-8").splitlines()]
    year = {row["id"]: row["year"] for row in rows}
    assert len({row["title"] for row in rows}) == len(rows) == len(year)
    assert all(year[cited] <= row["year"] for row in rows for cited in row["references"])
    cited = [len(row["references"]) for row in rows]
    assert max(cited) == 30
    assert sum(cited) / len(cited) > 5


def test_questions_split_by_text_and_name_papers_that_exist() -> None:
    texts = {split: {task.question for task in small_library.small_library(split)} for split in SPLITS}
    assert not texts["train"] & texts["test"]
    known = {work.id: work for work in papers()}
    dated = 0
    for split in SPLITS:
        for task in small_library.small_library(split):
            wanted = [known[paper_id] for paper_id in task.gold]
            assert wanted
            assert len(wanted) <= 30
            dated += bool(task.cutoff)
            assert not task.cutoff or all(str(work.year) <= task.cutoff for work in wanted)
    assert dated > 40
    with pytest.raises(SettingError, match="'train', 'test'"):
        small_library.small_library("dev")


def test_a_name_is_not_enough_to_find_all_of_a_subject() -> None:
    renamed = [work for work in papers() if work.other_name]
    assert len(renamed) > 100
    assert all(work.subject not in f"{work.title} {work.abstract}".lower() for work in renamed)
