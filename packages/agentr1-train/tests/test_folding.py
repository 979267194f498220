"""Folded prompts: exactly what was written comes back, and a distinct token is written once."""

from typing import Any

from agentr1_train.folding import fold, unfold
from hypothesis import given, settings
from hypothesis import strategies as st

some = st.lists(st.integers(0, 2), max_size=6)
rows = st.lists(
    st.fixed_dictionaries({"prompt_ids": some, "response_ids": some, "final_prompt_ids": st.none() | some}), max_size=12
)
NEW = ("prompt_base", "prompt_shared", "prompt_rest", "final_prompt_shared", "final_prompt_rest")


def stored(given_rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a file would give back."""
    kept = []
    for row, columns in zip(given_rows, fold(given_rows), strict=True):
        kept.append({"response_ids": row.get("response_ids")} | dict.fromkeys(NEW) | columns)
    return kept


@settings(max_examples=200, deadline=None)
@given(rows)
def test_what_was_folded_comes_back(given_rows: list[dict[str, Any]]) -> None:
    kept = stored(given_rows)
    unfold(kept)
    for name in ("prompt_ids", "final_prompt_ids"):
        assert [row[name] for row in kept] == [row[name] for row in given_rows]


def test_a_history_is_written_once_and_a_task_once_a_group() -> None:
    task = list(range(100, 120))
    given_rows = []
    for member in range(3):
        history = task
        for step in range(4):
            said = [member * 10 + step] * 5
            given_rows.append({"prompt_ids": history, "response_ids": said})
            history = history + said + [90 + member, 95 + step]
    kept = stored(given_rows)
    assert [len(row["prompt_rest"]) for row in kept] == [20, 2, 2, 2] + [0, 2, 2, 2] * 2
    assert [row["prompt_base"] is None for row in kept] == [True] + [False] * 11
    assert kept[1]["prompt_base"] == 0
    assert kept[1]["prompt_shared"] == 25


def test_a_row_without_a_step() -> None:
    (kept,) = stored([{"final_prompt_ids": []}])
    unfold([kept])
    assert kept["prompt_ids"] is None
    assert kept["final_prompt_ids"] == []
