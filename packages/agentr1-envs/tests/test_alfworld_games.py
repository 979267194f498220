import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.alfworld.games import TASK_TYPES, GameTask, find_games, load_games
from agentr1_envs.alfworld.sample.bundled import bundled_rows, household_logic
from agentr1_envs.errors import DataNotFoundError, DataRowError, SettingError

DOMAIN, GRAMMAR = household_logic()
ROWS = [row for _, row in bundled_rows("train")][:3]


def packed(folder: Path, rows: list[Any], name: str = "train.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "logic.json").write_text(json.dumps({"pddl_domain": DOMAIN, "grammar": GRAMMAR}))
    text = "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
    with lzma.open(folder / name, "wt") if name.endswith("xz") else (folder / name).open("w") as file:
        file.write(text)
    return folder


def tree(folder: Path, rows: list[Any], **changed: Any) -> Path:
    """The same games as the original project lays them out."""
    for number, row in enumerate(rows):
        place = folder / "json_2.1.1" / "train" / f"{row['task_type']}-x-{number}" / f"trial_{number}"
        place.mkdir(parents=True)
        goal = json.dumps(row["goal"])[1:-1]
        game = {
            "pddl_domain": DOMAIN,
            "grammar": GRAMMAR.replace("UNKNOWN GOAL", goal),
            "pddl_problem": row["pddl_problem"],
            "walkthrough": row["walkthrough"],
            "solvable": True,
            **changed,
        }
        (place / "game.tw-pddl").write_text(json.dumps(game))
        people = {"turk_annotations": {"anns": [{"task_desc": words} for words in row["human_goals"]]}}
        (place / "traj_data.json").write_text(json.dumps(people))
    return folder


def contents(folder: Path, **settings: Any) -> list[tuple[Any, ...]]:
    tasks = load_games("train", folder, **settings)
    games = [task for task in tasks if isinstance(task, GameTask)]
    return [(g.question, g.plan, g.kind, g.human_goals, g.logic, g.file("x").problem) for g in games]


@pytest.mark.parametrize("name", ["train.jsonl", "train.jsonl.xz"])
def test_packed_games_are_listed_by_task_id(tmp_path: Path, name: str) -> None:
    folder = packed(tmp_path / "games", ROWS[::-1], name)
    assert load_games("train", folder).task_ids == tuple(sorted(row["id"] for row in ROWS))
    assert load_games("train", folder / name) is load_games("train", folder)


def test_the_official_tree_holds_the_same_games(tmp_path: Path) -> None:
    rows = sorted(ROWS, key=lambda row: row["id"])
    assert contents(tree(tmp_path / "tree", rows)) == contents(packed(tmp_path / "packed", rows))
    shared = {id(game[4]) for game in contents(tmp_path / "tree")}
    assert len(shared) == 1, "games of one kind share their rules, whatever their goal"


def test_games_are_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_games("train", None) is None
    official = tree(tmp_path / "official", ROWS)
    monkeypatch.setenv("ALFWORLD_DATA", str(official))
    assert find_games("train", None) == official / "json_2.1.1" / "train"
    packed(tmp_path / "alfworld", ROWS)
    monkeypatch.setenv("AGENTR1_DATA", str(tmp_path))
    assert find_games("train", None) == tmp_path / "alfworld" / "train.jsonl"
    assert find_games("train", "bundled") is None
    with pytest.raises(DataNotFoundError, match="valid_seen"):
        find_games("valid_seen", None)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"solvable": False}, "unsolvable"),
        ({"pddl_problem": ""}, "pddl_problem"),
        ({"task_type": "dance"}, "'dance'"),
        ({"walkthrough": "go"}, "walkthrough"),
    ],
)
def test_a_bad_game_is_refused_by_name_or_left_out(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    folder = packed(tmp_path / "games", [ROWS[0], {**ROWS[1], **changed}])
    with pytest.raises(DataRowError, match=message) as caught:
        load_games("train", folder)
    assert "train.jsonl, line 2" in str(caught.value)
    kept = load_games("train", folder, "skip")
    assert (len(kept), len(kept.skipped_rows)) == (1, 1)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    for rows, kind, message in (
        (["{\n"], DataRowError, "line 1"),
        (["[]\n"], DataRowError, "needs an object"),
        ([ROWS[0], ROWS[0]], DataRowError, "twice"),
        ([], SettingError, "no game"),
    ):
        with pytest.raises(kind, match=message):
            load_games("train", packed(tmp_path / "games", rows))
    (tmp_path / "games" / "logic.json").unlink()
    with pytest.raises(DataNotFoundError, match=r"logic\.json"):
        load_games("train", tmp_path / "games")
    with pytest.raises(DataRowError, match=r"game\.tw-pddl.*unsolvable"):
        load_games("train", tree(tmp_path / "tree", ROWS, solvable=False))


def test_the_bundled_games_cover_all_types_and_four_homes() -> None:
    rows = [row for split in ("train", "valid_seen", "valid_unseen") for _, row in bundled_rows(split)]
    assert len({row["id"] for row in rows}) == len(rows) >= 24
    assert {row["task_type"] for row in rows} == set(TASK_TYPES)
    assert len({row["scene"] for row in rows}) == 4
    with pytest.raises(DataNotFoundError, match="valid_train"):
        load_games("valid_train", "bundled")


def test_the_real_games_are_all_there(shared_data: Path) -> None:
    tasks = load_games("valid_seen", shared_data / "alfworld")
    counts = [sum(task.kind == kind for task in tasks) for kind in TASK_TYPES]
    assert counts == [35, 13, 27, 16, 25, 24]
    assert all(isinstance(task, GameTask) and len(task.human_goals) >= 3 and task.plan for task in tasks)
