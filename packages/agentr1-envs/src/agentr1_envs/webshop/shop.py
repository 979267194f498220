"""An open shop: catalogue, prices and goals together, and the goals as tasks; one for all environments of a process."""

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agentr1_envs.errors import SettingError, require_choice
from agentr1_envs.once import OncePerProcess
from agentr1_envs.tasks import Task, TaskSet
from agentr1_envs.webshop.catalogue import NAME, Catalogue, find_catalogue, open_catalogue
from agentr1_envs.webshop.goals import (
    PRICE_SEED,
    Goal,
    draw_prices,
    goal_from_mapping,
    human_goals,
    shuffled,
    split_range,
    synthetic_goals,
)

SPLITS = ("train", "dev", "test")
GOAL_KINDS = ("synthetic", "human")

Floats = npt.NDArray[np.float64]

_SHOPS = OncePerProcess["Shop"](kept=8)
_WEIGHTS = OncePerProcess[Floats](kept=32)
_SPLITS = OncePerProcess[TaskSet](kept=32)


@dataclass(frozen=True, eq=False)
class Shop:
    """What every environment of a kind shares."""

    catalogue: Catalogue
    prices: Mapping[str, float]
    """Asin to price."""
    goals: tuple[Goal, ...]
    """In the benchmark's order, those of all splits."""
    own_goals: bool
    """Goals were given; they are in every split."""

    def goal(self, task: Task) -> Goal:
        """The goal of a task."""
        return self.goals[int(task.task_id.rpartition("-")[2])]

    def split(self, name: str) -> TaskSet:
        """The goals of a split as tasks.

        Raises:
            SettingError: this shop has no such split, or no goal in it.
        """
        return _SPLITS.get((self, name), lambda: self._tasks(name))

    def cumulative_weights(self, tasks: TaskSet) -> Floats:
        """Sums of the goals' weights, up to and with each task of a split. Shape: (tasks,)."""
        return _WEIGHTS.get((self, tasks), lambda: np.cumsum([self.goal(task).weight for task in tasks]))

    def _tasks(self, name: str) -> TaskSet:
        places = range(len(self.goals))
        if not self.own_goals:
            places = split_range(name, len(self.catalogue.products), len(self.goals))
        tasks = tuple(
            Task(task_id=f"goal-{place}", split=name, question=goal.instruction, answers=(goal.asin,))
            for place in places
            for goal in (self.goals[place],)
        )
        return TaskSet(NAME, name, tasks, self.catalogue.source)


class ShopSource:
    """Opens the shop when first called; what can be checked without reading is checked at once."""

    def __init__(
        self,
        split: str,
        data: str | os.PathLike[str] | None,
        goals: str | Sequence[Mapping[str, Any]],
        prices: Mapping[str, float] | None,
        tagger: str | None = None,
    ) -> None:
        self._split = require_choice("split", split, SPLITS)
        self._path = find_catalogue(data)
        if isinstance(goals, str):
            require_choice("goals", goals, GOAL_KINDS)
        elif not goals:
            raise SettingError(f"goals=() holds no goal; give some, or one of {', '.join(map(repr, GOAL_KINDS))}.")
        self._goals, self._prices, self._tagger = goals, prices, tagger

    def __call__(self) -> TaskSet:
        return self.shop().split(self._split)

    def shop(self) -> Shop:
        """The shop, opened once a process.

        Raises:
            SettingError: a price or a goal is of a product the shop does not sell.
        """
        catalogue = open_catalogue(self._path, self._tagger)
        goals = self._goals if isinstance(self._goals, str) else repr(self._goals)
        prices = None if self._prices is None else tuple(self._prices.items())
        return _SHOPS.get((catalogue, goals, prices), lambda: _open(catalogue, self._goals, self._prices))


def _open(catalogue: Catalogue, goals: str | Sequence[Mapping[str, Any]], prices: Mapping[str, float] | None) -> Shop:
    rng = random.Random(PRICE_SEED)
    drawn = draw_prices(catalogue.products, rng)
    for asin in prices or {}:
        if asin not in drawn:
            raise SettingError(f"prices: the shop ({catalogue.source}) sells no product {asin!r}.")
    known = {**drawn, **(prices or {})}
    if not isinstance(goals, str):
        own = tuple(goal_from_mapping(goal, index, catalogue.by_asin) for index, goal in enumerate(goals))
        return Shop(catalogue, known, own, own_goals=True)
    make = human_goals if goals == "human" else synthetic_goals
    made = shuffled(make(catalogue.products, known, rng))
    if not made:
        raise SettingError(f"goals={goals!r}: the catalogue ({catalogue.source}) has no instruction of this kind.")
    return Shop(catalogue, known, made, own_goals=False)
