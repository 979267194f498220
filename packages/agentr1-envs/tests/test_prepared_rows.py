import json
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.datasets import GSM8K, HOTPOTQA
from agentr1_envs.errors import DataRowError
from agentr1_envs.loader import load_tasks


def lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_rows_of_verl_and_search_r1_are_read_as_they_are(tmp_path: Path) -> None:
    verl = {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": "2+3? Think step by step."}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "5"},
        "extra_info": {"split": "train", "index": 7, "question": "2+3?", "answer": "<<2+3=5>>\n#### 5"},
    }
    task = load_tasks(GSM8K, "train", lines(tmp_path / "verl.jsonl", verl))[0]
    assert (task.task_id, task.question, task.answers, task.plan) == ("train-00007", "2+3?", ("5",), ("2+3",))
    bare = {**verl, "extra_info": None}
    assert load_tasks(GSM8K, "train", lines(tmp_path / "bare.jsonl", bare))[0].question == "2+3? Think step by step."
    search_r1 = {
        "id": "test_0",
        "question": "Who?",
        "golden_answers": ["Ada", "Ada L."],
        "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "long prompt"}],
        "reward_model": {"style": "rule", "ground_truth": {"target": ["Ada", "Ada L."]}},
    }
    task = load_tasks(HOTPOTQA, "train", lines(tmp_path / "search.jsonl", search_r1))[0]
    assert (task.task_id, task.question, task.answers) == ("test_0", "Who?", ("Ada", "Ada L."))
    bad = {**verl, "reward_model": {"ground_truth": "five"}}
    with pytest.raises(DataRowError, match=r"'reward_model\.ground_truth': needs a number"):
        load_tasks(GSM8K, "train", lines(tmp_path / "bad.jsonl", bad))
    empty = {**verl, "reward_model": {"ground_truth": None}}
    with pytest.raises(DataRowError, match="needs an answer"):
        load_tasks(GSM8K, "train", lines(tmp_path / "empty.jsonl", empty))
