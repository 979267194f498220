import json
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.datasets import HOTPOTQA
from agentr1_envs.errors import DataRowError
from agentr1_envs.hotpotqa_data import react_indices
from agentr1_envs.loader import load_tasks


def lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_the_shapes_of_hotpotqa(tmp_path: Path) -> None:
    facts, context = [["T", 0], ["U", 1]], [["T", ["One."]], ["U", ["Two.", " Three."]]]
    official = {"_id": "x", "question": "q", "answer": "a", "supporting_facts": facts, "context": context}
    columns = {
        "id": "x",
        "question": "q",
        "answer": "a",
        "supporting_facts": {"title": ["T", "U"], "sent_id": [0, 1]},
        "context": {"title": ["T", "U"], "sentences": [["One."], ["Two.", " Three."]]},
    }
    tasks = [
        load_tasks(HOTPOTQA, "dev", lines(tmp_path / f"{number}.jsonl", shape))[0]
        for number, shape in enumerate((official, columns))
    ]
    assert tasks[0] == tasks[1]
    assert tasks[0].supporting_titles == ("T", "U")
    assert tasks[0].context[1].text == "Two. Three."
    for field, value in (
        ("supporting_facts", [["T"]]),
        ("supporting_facts", [["T", "0"]]),
        ("context", [["T", "no list"]]),
        ("answer", ""),
        ("context_titles", "T"),
    ):
        with pytest.raises(DataRowError, match=f"line 1, field '{field}'"):
            load_tasks(HOTPOTQA, "dev", lines(tmp_path / "bad.jsonl", {**official, field: value}))


def test_react_indices_follow_the_rule() -> None:
    indices = react_indices()
    assert len(set(indices)) == 500
    assert indices[:5] == [3687, 6238, 5388, 3522, 3824]
