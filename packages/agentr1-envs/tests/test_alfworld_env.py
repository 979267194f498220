import copy
import gc
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.alfworld.game import Game
from agentr1_envs.alfworld.sample.generate import write_games
from agentr1_envs.alfworld.session import NOTHING
from agentr1_envs.errors import DataNotFoundError, GameFileError, SettingError, UnknownTaskError

ID = "agentr1/ALFWorld-v0"
MEMORY = """
import gymnasium, pathlib, sys
envs = [gymnasium.make("agentr1_envs:{env_id}", data={data!r}, split="valid_seen") for _ in range(64)]
for number, env in enumerate(envs):
    env.reset(seed=number)
    for _ in range(10):
        env.step(env.unwrapped.playing.engine.admissible[0])
status = pathlib.Path("/proc/self/status").read_text()  # ru_maxrss would be that of whoever started this process
print(int(status.split("VmHWM:")[1].split()[0]) // 1024)
"""


def test_a_win_pays_one_and_ends_the_episode(make: Any) -> None:
    env = make(ID, split="valid_seen")
    opening, info = env.reset(seed=0)
    assert f"Your task is to: {env.task.question}." in opening
    assert (info["task_type"], info["dialect"], info["valid_action"]) == (env.task.kind, "0.4", True)
    assert info["admissible_commands"] == tuple(sorted(info["admissible_commands"]))
    for command in env.demonstration():
        assert command in info["admissible_commands"]
        _, reward, terminated, truncated, info = env.step(f"  {command}\n")
        assert info["valid_action"]
        assert reward == float(terminated) == float(info["success"])
    assert (terminated, truncated, info["end_reason"]) == (True, False, "won")


def test_a_command_that_is_not_admissible_counts_as_a_step(make: Any) -> None:
    env = make(ID, max_steps=2)
    _, before = env.reset(seed=1)
    for ending in (False, True):
        said, reward, terminated, truncated, info = env.step("Look")
        assert (said, reward, terminated, truncated, info["valid_action"]) == (NOTHING, 0.0, False, ending, False)
    assert info["admissible_commands"] == before["admissible_commands"]
    assert (info["steps"], info["success"], info["end_reason"]) == (2, False, "max_steps")


def test_the_old_dialect_is_an_alias_only_when_asked_for(make: Any) -> None:
    for dialect, accepted in (("own", False), ("0.3", True)):
        env = make(ID, dialect=dialect, task_types="pick_and_place_simple")
        env.reset(seed=0)
        *before, last = env.demonstration()
        for command in before:
            env.step(command)
        thing, _, place = last.removeprefix("move ").partition(" to ")
        *_, info = env.step(f"put {thing} in/on {place}")
        assert (info["valid_action"], info["success"], info["dialect"]) == (accepted, accepted, "0.4")


def test_the_expert_follows_the_walkthrough_and_plans_only_when_asked(make: Any) -> None:
    plain, planning = make(ID), make(ID, expert_seconds=60.0)
    for env in (plain, planning):
        env.reset(seed=2)
        first, second, *_ = env.demonstration()
        assert env.expert() == first
        env.step(first)
        env.step("inventory")
        assert env.expert() == second
        away = next(c for c in env.playing.engine.admissible if c.startswith("go to"))
        env.step(away)
    assert plain.expert() == ""
    assert plain.demonstration() == []
    while command := planning.expert():
        *_, info = planning.step(command)
    assert info["success"]


def test_an_episode_can_be_put_aside_and_taken_up(make: Any) -> None:
    env, other = make(ID, observation="messages", render_mode="ansi"), make(ID, observation="messages")
    env.reset(seed=4)
    script = env.demonstration()
    for command in script[:2]:
        env.step(command)
    state = json.loads(json.dumps(env.get_state()))
    twin = copy.deepcopy(env)
    assert twin.tasks is env.tasks
    other.set_state(state)
    rest = [[one.step(command) for command in script[2:]] for one in (env, twin, other)]
    assert rest[0] == rest[1] == rest[2]
    assert rest[0][-1][4]["success"]
    env.set_state(state)
    assert env.step(script[2]) == rest[0][0]
    with pytest.raises(SettingError, match="get_state"):
        other.set_state({"task_id": state["task_id"]})
    with pytest.raises(UnknownTaskError):
        other.set_state({**state, "task_id": "none"})


def test_goals_of_people_are_drawn_by_the_seed(make: Any, shared_data: Path) -> None:
    env = make(ID, data=shared_data / "alfworld", split="valid_seen", goals="human")
    task_id = env.task_ids[0]
    seen = {env.reset(seed=seed, options={"task_id": task_id})[0] for seed in range(20)}
    assert len(seen) == len(set(env.task.human_goals))
    assert all(any(goal in opening for goal in env.task.human_goals) for opening in seen)
    assert env.reset(seed=3) == env.reset(seed=3)


def test_games_do_not_pile_up(make: Any) -> None:
    env = make(ID)
    for task_id in env.task_ids:
        env.reset(options={"task_id": task_id})
        env.step("inventory")
    gc.collect()
    assert sum(type(thing) is Game for thing in gc.get_objects()) <= 20 < len(env.task_ids)


def test_a_broken_game_is_named(tmp_path: Path, make: Any) -> None:
    path, _ = write_games(0, 1, "train", tmp_path)
    row = json.loads(path.read_text())
    path.write_text(json.dumps({**row, "pddl_problem": row["pddl_problem"][:-200]}))
    with pytest.raises(GameFileError, match=rf"game {row['id']} \(.*train\.jsonl, line 1\): .*cut off"):
        make(ID, data=tmp_path).reset(seed=0)


def test_wrong_arguments_are_refused_at_once(tmp_path: Path, make: Any) -> None:
    for kwargs, kind, message in (
        ({"split": "valid_sen"}, SettingError, "Did you mean 'valid_seen'"),
        ({"task_types": "pick_two"}, SettingError, "pick_two_obj_and_place"),
        ({"dialect": "0.2"}, SettingError, "'0.3'"),
        ({"goals": "humans"}, SettingError, "Did you mean 'human'"),
        ({"engine": "natve"}, SettingError, "Did you mean 'native'"),
        ({"expert_seconds": -1.0}, SettingError, "0 or more"),
        ({"max_step": 3}, SettingError, "Did you mean 'max_steps'"),
        ({"data": tmp_path}, DataNotFoundError, "agentr1-envs generate alfworld"),
    ):
        with pytest.raises(kind, match=message):
            make(ID, **kwargs)


def test_every_walkthrough_of_the_seen_games_wins(make: Any, expert: Any, shared_data: Path) -> None:
    env = make(ID, data=shared_data / "alfworld", split="valid_seen")
    for task_id in env.task_ids[::7]:
        steps = expert(env, task_id)
        assert all(info["valid_action"] for *_, info in steps), task_id
        assert [step[1] for step in steps] == [0.0] * (len(steps) - 1) + [1.0], task_id


def test_a_random_policy_hardly_ever_wins(make: Any, shared_data: Path) -> None:
    env = make(ID, data=shared_data / "alfworld", split="valid_seen", max_steps=20)
    draw, won = random.Random(0), 0
    for task_id in env.task_ids[::10]:
        _, info = env.reset(options={"task_id": task_id})
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(draw.choice(info["admissible_commands"]))
            over = terminated or truncated
        won += info["success"]
    assert won <= 2


def test_sixty_four_environments_take_little_memory(shared_data: Path) -> None:
    script = MEMORY.format(env_id=ID, data=str(shared_data / "alfworld"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200
