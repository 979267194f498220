import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from agentr1_envs import prepare as module
from agentr1_envs.datasets import GSM8K, HOTPOTQA
from agentr1_envs.errors import DataNotFoundError, DataRowError, SettingError
from agentr1_envs.loader import load_tasks
from agentr1_envs.prepare import find_sources, prepare

COLUMNS = [
    "task_id",
    "split",
    "data_source",
    "prompt",
    "ability",
    "reward_model",
    "extra_info",
    "agent_name",
    "env_kwargs",
]


def rows_of(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_the_real_gsm8k_comes_back_the_same(tmp_path: Path, shared_data: Path) -> None:
    sources = find_sources(GSM8K, shared_data / "gsm8k", None)
    written, passages = prepare(GSM8K, sources, tmp_path)
    assert [(part.split, part.tasks, part.skipped, part.empty_gold) for part in written] == [
        ("train", 7473, (), 0),
        ("test", 1319, (), 0),
    ]
    assert passages == 0
    table = parquet.read_table(tmp_path / "test.parquet")
    assert table.column_names == COLUMNS
    row = table.slice(0, 1).to_pylist()[0]
    assert row["prompt"] == [{"role": "user", "content": row["extra_info"]["question"]}]
    assert row["reward_model"] == {"style": "rule", "ground_truth": "18"}
    assert row["env_kwargs"] == {"env_id": "agentr1/GSM8K-v0", "split": "test", "task_id": "test-00000"}
    for split in ("train", "test"):
        assert load_tasks(GSM8K, split, tmp_path).tasks == load_tasks(GSM8K, split, shared_data / "gsm8k").tasks


def test_the_real_hotpotqa_comes_back_the_same(tmp_path: Path, shared_data: Path) -> None:
    place = shared_data / "hotpotqa"
    written, passages = prepare(HOTPOTQA, find_sources(HOTPOTQA, place, None), tmp_path, corpus=place / "corpus.jsonl")
    assert {part.split: part.tasks for part in written} == {"train": 399, "dev": 755}
    assert passages == 18898
    tasks = load_tasks(HOTPOTQA, "dev", tmp_path)
    assert tasks.tasks == load_tasks(HOTPOTQA, "dev", place).tasks
    assert tasks.corpus == str((tmp_path / "corpus.jsonl").resolve())


def test_paragraphs_become_the_corpus_and_survive(tmp_path: Path, make: Any) -> None:
    source = rows_of(
        tmp_path / "hotpot_dev_distractor_v1.json.jsonl",
        [
            {
                "_id": "a",
                "question": "q",
                "answer": "The",
                "answer_aliases": ["alias"],
                "supporting_facts": [["T", 0]],
                "context": [["T", ["One.", " Two."]], ["U", ["Three."]]],
            },
            {"_id": "b", "question": "r", "answer": "x", "context": [["T", ["Another text."]]]},
        ],
    )
    written, passages = prepare(HOTPOTQA, {"dev": [source]}, tmp_path / "out")
    assert (passages, written[0].empty_gold) == (3, 0)  # both texts of T are kept
    env = make("agentr1/HotpotQA-v0", data=tmp_path / "out", split="dev", mode="react")
    env.reset(options={"task_id": "a"})
    assert env.task.answers == ("The", "alias")
    assert env.step("search[T]")[0] == "One. Two."
    assert make("agentr1/HotpotQA-v0", data=tmp_path / "out", split="dev", mode="context").reset(seed=0)


def test_gold_answers_that_normalise_to_nothing_are_counted(tmp_path: Path) -> None:
    source = rows_of(tmp_path / "dev.jsonl", [{"question": "q", "answer": "The"}, {"question": "r", "answer": "!"}])
    assert prepare(HOTPOTQA, {"dev": [source]}, tmp_path / "out")[0][0].empty_gold == 2


def test_bad_rows_leave_nothing_behind(tmp_path: Path) -> None:
    good = rows_of(tmp_path / "train.jsonl", [{"question": "q", "answer": "#### 1"}])
    bad = rows_of(tmp_path / "test.jsonl", [{"question": "q", "answer": "#### 1"}, {"question": "r"}])
    sources = {"train": [good], "test": [bad]}
    with pytest.raises(DataRowError, match="line 2, field 'answer'"):
        prepare(GSM8K, sources, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    written, _ = prepare(GSM8K, sources, tmp_path / "out", on_bad_row="skip")
    assert [len(part.skipped) for part in written] == [0, 1]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["test.parquet", "train.parquet"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = rows_of(tmp_path / "train.jsonl", [{"question": "q", "answer": "#### 1"}])
    prepare(GSM8K, {"train": [good]}, tmp_path)
    before = (tmp_path / "train.parquet").read_bytes()

    def fail(*paths: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(module.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        prepare(GSM8K, {"train": [good]}, tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "train.parquet").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["train.jsonl", "train.parquet"]


def test_one_file_in_and_out(tmp_path: Path) -> None:
    source = rows_of(tmp_path / "gsm_test_part.jsonl", [{"question": "q", "answer": "#### 1"}])
    sources = find_sources(GSM8K, source, None)
    assert list(sources) == ["test"]
    prepare(GSM8K, sources, tmp_path / "one.parquet")
    assert load_tasks(GSM8K, "test", tmp_path / "one.parquet")[0].question == "q"
    with pytest.raises(SettingError, match="one file"):
        prepare(GSM8K, {"train": [source], "test": [source]}, tmp_path / "two.parquet")


def test_sources_that_tell_too_little(tmp_path: Path) -> None:
    unclear = rows_of(tmp_path / "data.jsonl", [])
    with pytest.raises(SettingError, match=r"--split train\|test"):
        find_sources(GSM8K, unclear, None)
    assert find_sources(GSM8K, unclear, "train") == {"train": [unclear]}
    with pytest.raises(DataNotFoundError, match="no such file"):
        find_sources(GSM8K, tmp_path / "nowhere", None)
    with pytest.raises(SettingError, match="'train', 'dev', 'test'"):
        find_sources(HOTPOTQA, unclear, "tset")
    with pytest.raises(DataNotFoundError, match="holds no file of hotpotqa"):
        find_sources(HOTPOTQA, tmp_path, None)


def test_a_test_split_is_taken_where_there_is_no_other(tmp_path: Path, shared_data: Path, make: Any) -> None:
    sources = find_sources(HOTPOTQA, shared_data / "bamboogle", None)
    assert list(sources) == ["test"]
    corpus = shared_data / "2wikimultihopqa" / "corpus.jsonl"
    written, passages = prepare(HOTPOTQA, sources, tmp_path, corpus=corpus)
    assert ([(part.split, part.tasks) for part in written], passages) == ([("test", 125)], 8651)
    env = make("agentr1/HotpotQA-v0", data=tmp_path, split="test")
    assert env.tasks.tasks == load_tasks(HOTPOTQA, "test", shared_data / "bamboogle").tasks
    rows_of(tmp_path / "train.jsonl", [{"question": "q", "answer": "a"}])
    rows_of(tmp_path / "test.jsonl", [{"question": "no answer"}])
    assert list(find_sources(HOTPOTQA, tmp_path, None)) == ["train"]
