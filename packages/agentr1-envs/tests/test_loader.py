import json
import os
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.datasets import GSM8K, HOTPOTQA, find_dataset
from agentr1_envs.errors import DataNotFoundError, DataRowError, SettingError, UnknownTaskError
from agentr1_envs.loader import load_tasks


def lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def row(question: str, answer: str = "#### 1", **more: Any) -> dict[str, Any]:
    return {"question": question, "answer": answer, **more}


def test_the_order_of_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lambda data=None: load_tasks(GSM8K, "train", data)[0].question  # noqa: E731
    assert load_tasks(GSM8K, "train").source == "bundled sample"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user"))
    lines(tmp_path / "user" / "agentr1" / "gsm8k" / "train.jsonl", row("of the user"))
    assert first() == "of the user"
    monkeypatch.setenv("AGENTR1_DATA", str(tmp_path / "configured"))
    lines(tmp_path / "configured" / "gsm8k" / "train.jsonl", row("configured"))
    assert first() == "configured"
    given = lines(tmp_path / "any_name.jsonl", row("given"))
    assert first(given) == "given"
    assert first(tmp_path / "configured") == "configured"
    assert first(tmp_path / "configured" / "gsm8k") == "configured"
    assert load_tasks(GSM8K, "train", "bundled").source == "bundled sample"
    assert load_tasks(HOTPOTQA, "dev").source == "bundled sample"  # AGENTR1_DATA has no such task


def test_a_missing_place_names_the_path_and_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataNotFoundError) as caught:
        load_tasks(GSM8K, "test", tmp_path / "no where")
    commands = ("agentr1-envs download gsm8k", "agentr1-envs prepare gsm8k")
    for part in (str(tmp_path / "no where"), "does not exist", *commands):
        assert part in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)
    monkeypatch.setenv("AGENTR1_DATA", str(tmp_path / "unset"))
    with pytest.raises(DataNotFoundError, match="AGENTR1_DATA"):
        load_tasks(GSM8K, "test")
    monkeypatch.setenv("AGENTR1_DATA", str(tmp_path))
    lines(tmp_path / "gsm8k" / "train.jsonl", row("q"))
    with pytest.raises(DataNotFoundError, match=r"holds no file of gsm8k/test.*test\.parquet"):
        load_tasks(GSM8K, "test")


def test_bad_rows_are_named_by_line_and_field(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "train.jsonl",
        row("good"),
        "{broken",
        "",
        {"question": "no answer"},
        row("no gold", "so it is 5"),
        row("   "),
        "[1]",
        row("good too"),
        row("not a number", "#### ,"),
    )
    with pytest.raises(DataRowError, match=r"train\.jsonl, line 2, field '\(whole line\)'") as caught:
        load_tasks(GSM8K, "train", path)
    assert "6 rows are bad" in str(caught.value)
    for part in ("line 4, field 'answer'", "line 5, field 'answer'", "line 6, field 'question'", "on_bad_row='skip'"):
        assert part in str(caught.value)
    tasks = load_tasks(GSM8K, "train", path, "skip")
    assert [task.question for task in tasks] == ["good", "good too"]
    assert [task.task_id for task in tasks] == ["train-00000", "train-00007"]
    assert [line.split(", ")[1] for line in tasks.skipped_rows] == [
        "line 2",
        "line 4",
        "line 5",
        "line 6",
        "line 7",
        "line 9",
    ]


def test_a_misspelt_field_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(DataRowError, match="Did you mean 'quesion'"):
        load_tasks(GSM8K, "train", lines(tmp_path / "train.jsonl", {"quesion": "x", "answer": "#### 1"}))


def test_an_id_may_stand_once(tmp_path: Path) -> None:
    path = lines(tmp_path / "train.jsonl", row("x", id="a"), row("y", id="b"), row("z", id="a"))
    with pytest.raises(DataRowError, match="line 3, field 'task_id': 'a' stands on line 1 too"):
        load_tasks(GSM8K, "train", path)


def test_rows_of_another_split_are_left_alone(tmp_path: Path) -> None:
    path = lines(tmp_path / "all.jsonl", row("x", split="train"), row("y", split="test"), row("z", split="test"))
    assert [task.question for task in load_tasks(GSM8K, "test", path)] == ["y", "z"]
    only = lines(tmp_path / "only.jsonl", row("x", split="test"))
    with pytest.raises(SettingError, match="no task of split 'train'; its rows are of split 'test'"):
        load_tasks(GSM8K, "train", only)


def test_a_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    path = lines(tmp_path / "train.jsonl", row("old"))
    first = load_tasks(GSM8K, "train", path)
    assert load_tasks(GSM8K, "train", path) is first
    lines(path, row("new and longer"))
    os.utime(path, ns=(1, 1))
    assert load_tasks(GSM8K, "train", path)[0].question == "new and longer"


def test_a_json_file_may_hold_its_rows_under_data(tmp_path: Path) -> None:
    for content in ([row("q")], {"data": [row("q")]}):
        path = tmp_path / f"{type(content).__name__}.json"
        path.write_text(json.dumps(content))
        assert load_tasks(GSM8K, "train", path)[0].question == "q"
    for name, content, message in (
        ("x.json", "{}", "list of objects"),
        ("y.json", "{", "no JSON"),
        ("z.csv", "a", "suffix"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(SettingError, match=message):
            load_tasks(GSM8K, "train", tmp_path / name)
    (tmp_path / "bad.parquet").write_text("PAR1")
    with pytest.raises(SettingError, match="parquet"):
        load_tasks(GSM8K, "train", tmp_path / "bad.parquet")


def test_unknown_names() -> None:
    with pytest.raises(SettingError, match="Did you mean 'hotpotqa'"):
        find_dataset("hotpot_qa")
    with pytest.raises(UnknownTaskError, match="400 tasks"):
        load_tasks(GSM8K, "test").find("nothing like it")
