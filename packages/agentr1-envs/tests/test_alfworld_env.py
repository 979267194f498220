import copy
import gc
import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
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

EPISODES = """
import gymnasium, json, random
env = gymnasium.make("agentr1_envs:{env_id}", data={data!r}, split="valid_seen")
given = []
for task_id in env.unwrapped.task_ids[::47]:
    draw = random.Random(3)
    given.append([env.reset(options={{"task_id": task_id}})])
    info = given[-1][0][1]
    for _ in range(12):
        given[-1].append(env.step(draw.choice(info["admissible_commands"])))
        info = given[-1][-1][-1]
print(json.dumps(given))
"""
THOUSAND = """
import gymnasium, itertools, pathlib
env = gymnasium.make("agentr1_envs:{env_id}", data={data!r}, split="valid_train").unwrapped
for number, task_id in enumerate(itertools.islice(itertools.cycle(env.task_ids), 1201)):
    _, info = env.reset(options={{"task_id": task_id}})
    for step in range(3):
        *_, info = env.step(info["admissible_commands"][step * 7 % len(info["admissible_commands"])])
    if number >= 200 and number % 100 == 0:
        print(pathlib.Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0])
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


def test_looking_is_admissible_and_case_counts(make: Any, shared_data: Path) -> None:
    env = make(ID, data=shared_data / "alfworld", split="valid_seen")
    _, info = env.reset(seed=0)
    assert {"help", "inventory", "look"} <= set(info["admissible_commands"])
    place = next(c for c in info["admissible_commands"] if c.startswith("go to "))
    assert env.step(place.upper())[0] == NOTHING
    *_, info = env.step(place)
    assert f"examine {place.removeprefix('go to ')}" in info["admissible_commands"]


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


def test_an_impossible_command_costs_what_was_set(make: Any) -> None:
    env = make(ID, invalid_penalty=0.25)
    env.reset(seed=0)
    *script, last = env.demonstration()
    assert env.step("fly to the moon")[1] == -0.25
    assert [env.step(command)[1] for command in script] == [0.0] * len(script)
    _, reward, *_, info = env.step(last)
    assert (reward, info["reward/task"], info["reward/format"]) == (1.0, 1.0, 0.0)


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
        ({"invalid_penalty": -0.1}, SettingError, "0 or more"),
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


def episode(env: Any, task_id: str, seed: int, steps: int = 12) -> list[Any]:
    """A game played at random; all that the environment gave."""
    draw, given = random.Random(seed), [env.reset(options={"task_id": task_id})]
    info = given[0][1]
    for _ in range(steps):
        given.append(env.step(draw.choice(info["admissible_commands"])))
        info = given[-1][-1]
    return given


def test_the_same_real_game_says_the_same_again(make: Any, shared_data: Path) -> None:
    env, other = (make(ID, data=shared_data / "alfworld", split="valid_seen") for _ in range(2))
    task_id = env.task_ids[17]
    first = episode(env, task_id, 1)
    episode(env, env.task_ids[18], 1)
    assert episode(env, task_id, 1) == episode(other, task_id, 1) == first
    assert env.reset(seed=5) == other.reset(seed=5) == env.reset(options={"task_id": other.task.task_id})


@pytest.mark.parametrize("hash_seed", ["0", "77"])
def test_a_real_game_says_the_same_in_another_process(hash_seed: str, make: Any, shared_data: Path) -> None:
    data = shared_data / "alfworld"
    done = subprocess.run(
        [sys.executable, "-c", EPISODES.format(env_id=ID, data=str(data))],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    env = make(ID, data=data, split="valid_seen")
    assert json.loads(done.stdout) == json.loads(json.dumps([episode(env, i, 3) for i in env.task_ids[::47]]))


def test_environments_in_threads_say_what_one_alone_says(make: Any, shared_data: Path) -> None:
    settings = {"data": shared_data / "alfworld", "split": "valid_seen"}
    env = make(ID, **settings)
    games = env.task_ids[::18]
    alone = [episode(env, task_id, 0) for task_id in games]
    envs = [make(ID, **settings) for _ in games]
    with ThreadPoolExecutor(len(games)) as threads:
        assert list(threads.map(episode, envs, games, [0] * len(games))) == alone


def test_no_reset_takes_long(make: Any, shared_data: Path) -> None:
    env, longest = make(ID, data=shared_data / "alfworld", split="valid_seen"), 0.0
    for task_id in env.task_ids[::3]:
        started = time.process_time()
        env.reset(options={"task_id": task_id})
        longest = max(longest, time.process_time() - started)
    assert longest < 1.0, "some hundredths of a second on an idle machine"


@pytest.mark.slow
def test_a_random_policy_hardly_ever_wins(make: Any, shared_data: Path) -> None:
    """A published run: 2 of the 140 seen games in 50 steps."""
    env = make(ID, data=shared_data / "alfworld", split="valid_seen")
    draw, won = random.Random(0), 0
    for task_id in env.task_ids:
        _, info = env.reset(options={"task_id": task_id})
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(draw.choice(info["admissible_commands"]))
            over = terminated or truncated
        won += info["success"]
    assert won <= 0.04 * len(env.task_ids)


@pytest.mark.slow
def test_memory_stays_flat_over_a_thousand_games(shared_data: Path) -> None:
    script = THOUSAND.format(env_id=ID, data=str(shared_data / "alfworld"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    held = [int(value) for value in done.stdout.split()]
    middle = (len(held) - 1) / 2
    spread = sum((number - middle) ** 2 for number in range(len(held)))
    growth = sum((number - middle) * value for number, value in enumerate(held)) / spread / 100
    assert growth < 4.0, f"KB a game: {growth:.2f}; the original engine grows by 1,100 ({held})"


def test_sixty_four_environments_take_little_memory(shared_data: Path) -> None:
    script = MEMORY.format(env_id=ID, data=str(shared_data / "alfworld"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200
