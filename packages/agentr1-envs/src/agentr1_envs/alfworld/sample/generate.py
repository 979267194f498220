"""Makes games from a seed: a home, a goal that does not hold yet, and a plan that the native engine has played."""

import json
import random
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from agentr1_envs.alfworld.game import GameFile, load_game
from agentr1_envs.alfworld.planner import find_plan
from agentr1_envs.alfworld.sample.bundled import game_row, household_logic
from agentr1_envs.alfworld.sample.home import (
    STATIONS,
    THINGS,
    WORDS,
    Goal,
    Home,
    goal_words,
    kind_of,
    piece_id,
    problem_text,
)
from agentr1_envs.alfworld.session import Session
from agentr1_envs.errors import SettingError, require_choice

_ROOMS: dict[str, tuple[str, ...]] = {
    "kitchen": ("cabinet", "countertop", "diningtable", "drawer", "fridge", "garbagecan", "microwave", "sink"),
    "bathroom": ("cabinet", "countertop", "drawer", "garbagecan", "shelf", "sidetable", "sink", "toilet"),
    "bedroom": ("bed", "desk", "drawer", "dresser", "garbagecan", "shelf", "sidetable"),
    "livingroom": ("armchair", "cabinet", "coffeetable", "desk", "drawer", "shelf", "sidetable", "sofa"),
}
_SINGLE = frozenset({*STATIONS, "toilet", "bed", "garbagecan"})
_PLAN_SECONDS = 60.0


def generate_games(
    seed: int, count: int, split: str = "train", most: int = 3, things: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    """`count` games as rows of a packed file.

    The same seed gives the same games.

    Args:
        seed: of every draw.
        count: how many.
        split: first part of the games' ids.
        most: pieces of furniture of one kind in a home, at most.
        things: kinds of things there are in the homes; empty for all in `THINGS`.

    Raises:
        SettingError: `count` or `most` is below 1; `things` has an unknown kind, or none that can be carried.
    """
    for kind in things:
        require_choice("things", kind, tuple(THINGS))
    if things and not any("portable" in THINGS[kind][0] for kind in things):
        raise SettingError(f"things={tuple(things)} has none that can be carried, so there is no goal.")
    for name, value in (("count", count), ("most", most)):
        if value < 1:
            raise SettingError(f"{name}={value} must be at least 1.")
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")
        row = None
        while row is None:
            row = _game(f"{split}/generated-{seed}-{number:05d}", chance, most, things or THINGS)
        yield row


def write_games(
    seed: int, count: int, split: str, folder: Path, most: int = 3, things: Collection[str] = ()
) -> tuple[Path, int]:
    """Write generated games as a packed file with its ``logic.json``; nothing is written unless all were made.

    Returns:
        The file, and how many games it holds.

    Raises:
        SettingError: the folder holds the rules of other games; or as `generate_games`.
    """
    domain, grammar = household_logic()
    logic = json.dumps({"pddl_domain": domain, "grammar": grammar}, indent=1) + "\n"
    beside = folder / "logic.json"
    if beside.exists() and beside.read_text() != logic:
        raise SettingError(f"{beside} holds the rules of other games; choose another folder with --out.")
    lines = [json.dumps(row) + "\n" for row in generate_games(seed, count, split, most, things)]
    folder.mkdir(parents=True, exist_ok=True)
    beside.write_text(logic)
    path = folder / f"{split}.jsonl"
    path.write_text("".join(lines))
    return path, len(lines)


def _game(task_id: str, chance: random.Random, most: int, kinds: Collection[str]) -> dict[str, Any] | None:
    """A game, or None when this draw has no goal or no plan."""
    scene = chance.choice(sorted(_ROOMS))
    home = _home(scene, chance, most, kinds)
    goals = _goals(home)
    if not goals:
        return None
    task_type = chance.choice(sorted({goal.task_type for goal in goals}))
    goal = chance.choice([goal for goal in goals if goal.task_type == task_type])
    domain, grammar = household_logic()
    problem = problem_text(task_id.rpartition("/")[2], home, goal)
    session = Session(load_game(GameFile(task_id, domain, grammar, problem, goal_words(goal)[0])))
    plan = find_plan(session, _PLAN_SECONDS)
    if not plan:
        return None  # it holds from the start, or cannot be reached
    for command in plan:
        session.step(command)
    return game_row(task_id, scene, home, goal, plan) if session.won else None


def _home(scene: str, chance: random.Random, most: int, kinds: Collection[str]) -> Home:
    furniture: list[str] = []
    for kind in _ROOMS[scene]:
        pieces = chance.randint(1, 1 if kind in _SINGLE else most)
        furniture += [piece_id(kind, n) for n in range(1, pieces + 1)]
    things: list[tuple[str, str]] = []
    for kind in sorted(set(kinds)):
        homes = [piece for piece in furniture if kind_of(piece) in THINGS[kind][1]]
        if homes and chance.random() < 0.6:
            alike = chance.randint(1, 1 if kind == "desklamp" else 2)
            things += [(f"{kind}_bar_{n}", chance.choice(homes)) for n in range(1, alike + 1)]
    return Home(tuple(furniture), tuple(things))


def _goals(home: Home) -> list[Goal]:
    """Every goal the home has the things for, in a fixed order."""
    rooms = sorted({kind_of(piece) for piece in home.furniture})
    kinds = sorted({kind_of(thing) for thing, _ in home.things})
    counts = {kind: sum(kind_of(thing) == kind for thing, _ in home.things) for kind in kinds}
    needs = {
        "pick_clean_then_place_in_recep": ("washable", "sink"),
        "pick_heat_then_place_in_recep": ("warmable", "microwave"),
        "pick_cool_then_place_in_recep": ("chillable", "fridge"),
    }
    goals: list[Goal] = []
    for kind in (kind for kind in kinds if "portable" in THINGS[kind][0]):
        fitting = [room for room in rooms if room in THINGS[kind][1]]
        for task_type in WORDS:
            if task_type == "look_at_obj_in_light":
                goals += [Goal(task_type, kind, "desklamp")] if "desklamp" in kinds else []
                continue
            able, station = needs.get(task_type, ("portable", rooms[0]))
            enough = counts[kind] >= (2 if task_type == "pick_two_obj_and_place" else 1)
            if enough and able in THINGS[kind][0].split() and station in rooms:
                goals += [Goal(task_type, kind, room) for room in fitting]
    return goals
