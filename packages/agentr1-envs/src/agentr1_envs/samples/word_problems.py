"""Grade-school word problems by a seeded generator, in the spirit of GSM8K and sharing none of its text.

A problem is a chain of one to four operations told as a story: a start amount, then events that change it, then the
question. Every number is a positive integer that stays small, the vocabulary is about a hundred words, and each
problem carries its gold plan, one calculator expression an operation.

Which split a problem belongs to is decided by a checksum of its text, so no text can ever occur in both splits,
whatever the settings.
"""

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from agentr1_envs.errors import SettingError
from agentr1_envs.tasks import Task

SPLITS = ("train", "test")
OPERATIONS = (1, 2, 3, 4)
DEFAULT_OPERATIONS = (2, 3)
DEFAULT_MAX_NUMBER = 20
LARGEST_AMOUNT = 200
"""No intermediate amount exceeds this, unless `max_number` itself asks for larger numbers."""

_PER_OPERATIONS = {"train": 2000, "test": 200}
_TEST_SHARE = 5
"""One text in this many belongs to the test split."""

_NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo")
_THINGS = ("apples", "books", "cards", "coins", "eggs", "pens", "shells", "stamps")
_STARTS = ("{name} has {n} {things}.", "{name} starts with {n} {things}.", "There are {n} {things} in {name}'s box.")
_QUESTIONS = ("How many {things} does {name} have now?", "How many {things} are there in the end?")
_EVENTS: dict[str, tuple[str, ...]] = {
    "+": ("{name} gets {n} more.", "A friend brings {n} more.", "{name} buys {n} more.", "{name} finds {n} more."),
    "-": ("{name} gives {n} away.", "{name} loses {n}.", "{name} sells {n}.", "{n} are broken."),
    "*": (
        "Then the number grows to {n} times as many.",
        "{name} trades them for {n} times as many.",
    ),
    "/": (
        "{name} shares them evenly among {n} people and keeps one share.",
        "{name} packs them in {n} equal boxes and keeps one box.",
    ),
}


@dataclass(frozen=True, slots=True)
class _Problem:
    text: str
    plan: tuple[str, ...]
    answer: int


@lru_cache(maxsize=16)
def word_problems(
    split: str,
    operations: tuple[int, ...] = DEFAULT_OPERATIONS,
    max_number: int = DEFAULT_MAX_NUMBER,
) -> tuple[Task, ...]:
    """The problems of a split: 2,000 (train) or 200 (test) for each number of operations, interleaved.

    Args:
        split: "train" or "test".
        operations: how many operations a problem may take, each from 1 to 4.
        max_number: the largest number in a text, at least 5.

    Raises:
        SettingError: a setting is out of range.
    """
    if split not in SPLITS:
        raise SettingError(f"split={split!r} of the bundled word problems is not known; legal: 'train', 'test'.")
    if not operations or any(count not in OPERATIONS for count in operations):
        raise SettingError(f"operations={operations!r}: needs one or more of {OPERATIONS}.")
    if max_number < 5:
        raise SettingError(f"max_number={max_number} must be at least 5.")
    by_count = [_draw(split, count, max_number) for count in sorted(set(operations))]
    return tuple(task for group in zip(*by_count, strict=True) for task in group)


@lru_cache(maxsize=32)
def _draw(split: str, count: int, max_number: int) -> tuple[Task, ...]:
    rng = random.Random(f"word problems, {count} operations, numbers to {max_number}, {split}")
    tasks: list[Task] = []
    seen: set[str] = set()
    wanted = _PER_OPERATIONS[split]
    while len(tasks) < wanted:
        problem = _compose(rng, count, max_number)
        if problem.text in seen or _split_of(problem.text) != split:
            continue
        seen.add(problem.text)
        tasks.append(
            Task(
                task_id=f"words-{count}x{max_number}-{split}-{len(tasks):04d}",
                split=split,
                question=problem.text,
                answers=(str(problem.answer),),
                solution=_solution(problem),
                plan=problem.plan,
                kind=f"{count} operations",
            )
        )
    return tuple(tasks)


def _split_of(text: str) -> str:
    return "test" if zlib.crc32(text.encode()) % _TEST_SHARE == 0 else "train"


def _compose(rng: random.Random, count: int, max_number: int) -> _Problem:
    name, things = rng.choice(_NAMES), rng.choice(_THINGS)
    amount = rng.randint(2, max_number)
    sentences = [rng.choice(_STARTS).format(name=name, things=things, n=amount)]
    plan: list[str] = []
    for _ in range(count):
        legal = [sign for sign, number in _CHOICES.items() if number(random.Random(0), amount, max_number)]
        sign = rng.choice(legal)
        number = _CHOICES[sign](rng, amount, max_number)
        plan.append(f"{amount}{sign}{number}")
        amount = {"+": amount + number, "-": amount - number, "*": amount * number, "/": amount // number}[sign]
        sentences.append(rng.choice(_EVENTS[sign]).format(name=name, n=number))
    sentences.append(rng.choice(_QUESTIONS).format(name=name, things=things))
    return _Problem(" ".join(sentences), tuple(plan), amount)


def _to_add(rng: random.Random, amount: int, max_number: int) -> int:
    most = min(max_number, max(LARGEST_AMOUNT, max_number) - amount)
    return rng.randint(2, most) if most >= 2 else 0


def _to_take(rng: random.Random, amount: int, max_number: int) -> int:
    most = min(max_number, amount - 1)
    return rng.randint(2, most) if most >= 2 else 0


def _to_multiply(rng: random.Random, amount: int, max_number: int) -> int:
    most = min(5, max(LARGEST_AMOUNT, max_number) // amount)
    return rng.randint(2, most) if most >= 2 else 0


def _to_divide(rng: random.Random, amount: int, max_number: int) -> int:
    factors = [factor for factor in range(2, 6) if amount % factor == 0 and amount > factor]
    return rng.choice(factors) if factors else 0


_CHOICES: dict[str, Callable[[random.Random, int, int], int]] = {
    "+": _to_add,
    "-": _to_take,
    "*": _to_multiply,
    "/": _to_divide,
}
"""For each sign, a number that keeps the amount a small positive integer; 0 when there is none."""


def _solution(problem: _Problem) -> str:
    amounts = [expression_value(expression) for expression in problem.plan]
    lines = [
        f"{expression} = <<{expression}={amount}>>{amount}"
        for expression, amount in zip(problem.plan, amounts, strict=True)
    ]
    return "\n".join([*lines, f"#### {problem.answer}"])


def expression_value(expression: str) -> int:
    """The value of one expression of a gold plan, ``<integer><sign><integer>``."""
    sign = next(sign for sign in "+-*/" if sign in expression)
    left, right = (int(part) for part in expression.split(sign))
    return {"+": left + right, "-": left - right, "*": left * right, "/": left // right}[sign]
