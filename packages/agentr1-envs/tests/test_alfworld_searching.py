"""Demonstrations that look for things and slip: they win, pass nothing they seek, and differ by the seed."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from agentr1_envs.alfworld.session import NOTHING
from agentr1_envs.errors import SettingError

pytestmark = pytest.mark.once

ID = "agentr1/ALFWorld-v0"
TOOLS = "agentr1/ALFWorldTools-v0"
SEEDS = range(25)

Make = Callable[..., Any]


def play(env: Any, seed: int) -> tuple[list[str], list[tuple[str, bool]], bool]:
    """The demonstration, each answer with whether its command was possible, and whether it won."""
    env.reset(seed=seed)
    commands = env.demonstration()
    answers, info = [], {"success": False}
    for command in commands:
        observation, *_, info = env.step(command)
        answers.append((observation, info["valid_action"]))
    return commands, answers, info["success"]


def test_slips_change_nothing_and_cost_a_step(make: Make) -> None:
    careful, careless = make(ID, max_steps=400), make(ID, slips=0.4, max_steps=400)
    slipped = 0
    for seed in SEEDS:
        careful.reset(seed=seed)
        straight = careful.demonstration()
        careless.reset(options={"task_id": careful.task.task_id}, seed=seed)
        commands = careless.demonstration()
        answers = [careless.step(command) for command in commands]
        possible = [command for command, answer in zip(commands, answers, strict=True) if answer[-1]["valid_action"]]
        assert possible == straight
        assert {answer[0] for answer in answers if not answer[-1]["valid_action"]} <= {NOTHING}
        assert answers[-1][-1]["success"]
        slipped += len(commands) - len(straight)
    assert slipped > len(SEEDS)


@pytest.mark.parametrize("env_id", [ID, TOOLS])
def test_a_search_wins_with_possible_commands_only(make: Make, env_id: str) -> None:
    env = make(env_id, searching=1.0, max_steps=400)
    for seed in SEEDS:
        _, answers, won = play(env, seed)
        assert won, seed
        assert all(valid for _, valid in answers), seed


def test_a_search_is_longer_the_more_patient_it_is(make: Make) -> None:
    lengths = []
    for searching in (0.0, 0.5, 1.0):
        env = make(ID, searching=searching, max_steps=400)
        lengths.append(sum(len(play(env, seed)[0]) for seed in SEEDS))
    straight, patient, endless = lengths
    assert straight < patient < endless
    assert endless > 1.5 * straight


def test_detours_pass_nothing_that_is_sought(make: Make) -> None:
    env = make(ID, searching=1.0, max_steps=400, task_types="pick_and_place_simple")
    detours = 0
    for seed in SEEDS:
        commands, answers, _ = play(env, seed)
        taken = next(index for index, command in enumerate(commands) if command.startswith("take "))
        kind = commands[taken].split()[1]
        assert f"a {kind} " in answers[taken - 1][0], commands
        assert not any(f"a {kind} " in text for text, _ in answers[: taken - 1]), commands
        detours += taken - 1
    assert detours > len(SEEDS)


@pytest.mark.parametrize(
    "task_type", ["pick_and_place_simple", "pick_clean_then_place_in_recep", "pick_two_obj_and_place"]
)
def test_a_search_as_listed_goes_through_the_furniture_and_takes_the_first_such_thing(
    make: Make, task_type: str
) -> None:
    env = make(ID, searching=1.0, search_order="listed", max_steps=400, task_types=task_type)
    for seed in SEEDS:
        opening, _ = env.reset(seed=seed)
        listed = re.findall(r"an? (\w+ \d+)", opening.partition("Your task")[0])
        commands = env.demonstration()
        texts = [opening]
        for command in commands:
            text, *_, info = env.step(command)
            texts.append(text)
        assert info["success"]
        taken = next(index for index, command in enumerate(commands) if command.startswith("take "))
        visited = [command.removeprefix("go to ") for command in commands[:taken] if command.startswith("go to ")]
        assert visited == listed[: len(visited)]
        kind = commands[taken].split()[1]
        assert not any(f"a {kind} " in text for text in texts[1:taken]), commands


def test_the_search_follows_the_seed_and_is_the_same_when_asked_again(make: Make) -> None:
    env = make(ID, searching=1.0, slips=0.2)
    games = {}
    for seed in range(60):
        env.reset(seed=seed)
        assert env.demonstration() == env.demonstration()
        games.setdefault(env.task.task_id, set()).add(tuple(env.demonstration()))
    assert max(map(len, games.values())) > 1
    env.reset(seed=3)
    first = env.demonstration()
    env.reset(seed=3)
    assert env.demonstration() == first


def test_a_search_goes_on_from_a_state(make: Make) -> None:
    env, other = make(ID, searching=1.0, slips=0.2), make(ID, searching=1.0, slips=0.2)
    env.reset(seed=5)
    other.set_state(env.get_state())
    assert other.demonstration() == env.demonstration()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"searching": 1.5}, "a probability"),
        ({"search_order": "alphabetical"}, "listed"),
        ({"slips": 1.0}, "a probability"),
        ({"slips": 0.1, "engine": "textworld"}, "need engine='native'"),
    ],
)
def test_what_cannot_be_searched_is_refused(make: Make, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make(ID, **settings)
