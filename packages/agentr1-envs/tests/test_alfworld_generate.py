import json
import re
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.alfworld.games import TASK_TYPES
from agentr1_envs.alfworld.sample.generate import generate_games, write_games
from agentr1_envs.errors import SettingError


def test_the_same_seed_gives_the_same_games() -> None:
    first = list(generate_games(3, 6))
    assert first == list(generate_games(3, 6))
    assert first[:2] == list(generate_games(3, 2))
    assert first != list(generate_games(4, 6))
    with pytest.raises(SettingError, match="count=0"):
        list(generate_games(3, 0))


def test_homes_have_as_many_pieces_of_a_kind_as_allowed() -> None:
    another = re.compile(r"_bar_[23] - furniture")
    assert any(another.search(row["pddl_problem"]) for row in generate_games(0, 20))
    assert not any(another.search(row["pddl_problem"]) for row in generate_games(0, 20, most=1))
    with pytest.raises(SettingError, match="most=0"):
        list(generate_games(3, 1, most=0))


def test_homes_hold_only_the_kinds_of_things_that_were_named() -> None:
    kind = re.compile(r"(\w+)_bar_\d+ - thing")
    rows = list(generate_games(0, 20, things=("mug", "desklamp", "book")))
    assert {name for row in rows for name in kind.findall(row["pddl_problem"])} == {"mug", "desklamp", "book"}
    assert {"apple", "pillow"} < {name for row in generate_games(0, 20) for name in kind.findall(row["pddl_problem"])}
    assert rows == list(generate_games(0, 20, things=("mug", "mug", "book", "desklamp")))
    with pytest.raises(SettingError, match="'mgu'"):
        list(generate_games(3, 1, things=("mgu",)))
    with pytest.raises(SettingError, match="none that can be carried"):
        list(generate_games(3, 1, things=("desklamp",)))


def test_every_generated_game_is_won_by_its_plan(tmp_path: Path, make: Any, expert: Any) -> None:
    path, count = write_games(0, 40, "train", tmp_path)
    assert count == len(path.read_text().splitlines()) == 40
    env = make("agentr1/ALFWorld-v0", data=tmp_path)
    assert {task.kind for task in env.tasks} == set(TASK_TYPES)
    for task_id in env.task_ids:
        *_, info = expert(env, task_id)[-1]
        assert info["success"], task_id


def test_the_rules_of_other_games_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "logic.json").write_text(json.dumps({"pddl_domain": "", "grammar": ""}))
    with pytest.raises(SettingError, match="other games"):
        write_games(0, 1, "train", tmp_path)
    assert not (tmp_path / "train.jsonl").exists()
