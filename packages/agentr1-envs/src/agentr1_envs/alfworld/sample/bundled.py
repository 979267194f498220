"""The hand-made games: homes and goals as written down beside this file, with the commands that win each."""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentr1_envs.alfworld.names import name_things
from agentr1_envs.alfworld.sample.home import (
    STATIONS,
    WITH_DOOR,
    Goal,
    Home,
    goal_words,
    kind_of,
    piece_id,
    problem_text,
)

BUNDLED_SPLITS = ("train", "valid_seen", "valid_unseen")

_FOLDER = Path(__file__).parent
_TREATMENTS = {
    "pick_clean_then_place_in_recep": ("clean", "washes"),
    "pick_heat_then_place_in_recep": ("heat", "warms"),
    "pick_cool_then_place_in_recep": ("cool", "chills"),
}


@lru_cache(maxsize=1)
def household_logic() -> tuple[str, str]:
    """Domain and grammar of this project's games."""
    return (_FOLDER / "household.pddl").read_text(), (_FOLDER / "household.grammar").read_text()


def bundled_rows(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The hand-made games of a split as rows of a packed file, with their number in the list."""
    homes: dict[str, Any] = json.loads((_FOLDER / "homes.json").read_text())
    games: list[dict[str, Any]] = json.loads((_FOLDER / "games.json").read_text())
    for number, game in enumerate(games, start=1):
        if game["split"] != split:
            continue
        plan = homes[game["home"]]
        furniture = tuple(piece_id(kind, n) for kind, count in plan["furniture"].items() for n in range(1, count + 1))
        home = Home(furniture, tuple({**plan["things"], **game["moved"]}.items()))
        goal = Goal(game["task_type"], game["thing"], game["target"])
        task_id = f"{split}/{goal.task_type}-{goal.thing}-{goal.target}-{game['home']}"
        yield number, game_row(task_id, game["home"], home, goal, scripted_plan(home, goal))


def game_row(task_id: str, scene: str, home: Home, goal: Goal, walkthrough: list[str]) -> dict[str, Any]:
    """One game as a row of a packed file."""
    words = goal_words(goal)
    return {
        "id": task_id,
        "task_type": goal.task_type,
        "scene": scene,
        "goal": words[0],
        "human_goals": list(words[1:]),
        "walkthrough": walkthrough,
        "pddl_problem": problem_text(task_id.rpartition("/")[2], home, goal),
    }


def scripted_plan(home: Home, goal: Goal) -> list[str]:
    """Commands that reach the goal: fetch, treat, bring."""
    names = name_things((*home.furniture, *(thing for thing, _ in home.things)))
    opened: set[str] = set()

    def visit(piece: str, reach_in: bool = True) -> list[str]:
        commands = [f"go to {names[piece]}"]
        if reach_in and kind_of(piece) in WITH_DOOR and piece not in opened:
            opened.add(piece)
            commands.append(f"open {names[piece]}")
        return commands

    candidates = [(thing, piece) for thing, piece in home.things if kind_of(thing) == goal.thing]
    if goal.task_type == "look_at_obj_in_light":
        thing, piece = candidates[0]
        lamp, under = next((t, p) for t, p in home.things if kind_of(t) == goal.target)
        fetched = [*visit(piece), f"take {names[thing]} from {names[piece]}"]
        return [*fetched, *visit(under), f"use {names[lamp]}"]
    target = next(piece for piece in home.furniture if kind_of(piece) == goal.target)
    wanted = 2 if goal.task_type == "pick_two_obj_and_place" else 1
    treatment = _TREATMENTS.get(goal.task_type)
    if treatment is None:
        there = [thing for thing, piece in candidates if piece == target]
        candidates = [(thing, piece) for thing, piece in candidates if piece != target]
        wanted -= len(there)
    plan: list[str] = []
    for thing, piece in candidates[:wanted]:
        plan += [*visit(piece), f"take {names[thing]} from {names[piece]}"]
        if treatment is not None:
            verb, power = treatment
            station = next(f for f in home.furniture if STATIONS.get(kind_of(f)) == power)
            plan += [*visit(station, reach_in=False), f"{verb} {names[thing]} with {names[station]}"]
        plan += [*visit(target), f"move {names[thing]} to {names[target]}"]
    return plan
