"""What a customer wants: `Goal`, made from the catalogue's instructions as the benchmark makes them.

Prices, and the highest price a goal allows, come from one private generator with a fixed seed: first the prices in
catalogue order, then one `price_upper` for each product with a goal. Goals are therefore equal in every process.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product as combinations
from typing import Any, cast

from agentr1_envs.errors import SettingError
from agentr1_envs.webshop.products import Product

PRICE_SEED = 0
SHUFFLE_SEED = 233
PRICE_BOUNDS = tuple(float(bound) for bound in range(10, 1000, 10))
NO_BOUND = 1_000_000.0

GoalOptions = Mapping[str, str] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Goal:
    """What the customer wants, and the product the instruction was written for."""

    index: int
    """Its place among all goals; the pages' addresses hold it."""
    asin: str
    title: str
    query: str
    product_category: str
    instruction: str
    attributes: tuple[str, ...]
    options: GoalOptions
    """Name to value in a synthetic goal; values only in one written by a person."""
    price_upper: float
    weight: float

    @property
    def option_values(self) -> tuple[str, ...]:
        """The wanted values."""
        return tuple(self.options.values()) if isinstance(self.options, Mapping) else self.options


def draw_prices(products: Sequence[Product], rng: random.Random) -> dict[str, float]:
    """A price for each product: its own, or drawn evenly from its range."""
    return {p.asin: p.pricing[0] if len(p.pricing) == 1 else rng.uniform(*p.pricing) for p in products}


def price_bounds(price: float) -> list[float]:
    """The bounds a goal may set on a product of this price: the first four multiples of 10 above it, up to 990."""
    return [bound for bound in PRICE_BOUNDS if bound > price][:4]


def synthetic_goals(products: Sequence[Product], prices: Mapping[str, float], rng: random.Random) -> list[Goal]:
    """One goal for each combination of options of each product with an instruction, in catalogue order."""
    goals: list[Goal] = []
    for product in products:
        if not product.instruction:
            continue
        upper, price_text = _price_upper(prices[product.asin], rng)
        names = sorted(product.options)
        for values in combinations(*(product.options[name] for name in names)):
            options = dict(zip(names, values, strict=True))
            wanted = ", and ".join(f"{name}: {value}" for name, value in options.items())
            text = f"{product.instruction}{' with ' + wanted if wanted else ''}{price_text}"
            goals.append(_goal(product, text, product.instruction_attributes, options, upper))
    counts = Counter(attribute for goal in goals for attribute in goal.attributes)
    return [replace(goal, weight=_weight(goal.attributes, counts)) for goal in goals]


def human_goals(products: Sequence[Product], prices: Mapping[str, float], rng: random.Random) -> list[Goal]:
    """One goal for each instruction that a person wrote and that names attributes, in catalogue order."""
    goals: list[Goal] = []
    for product in products:
        asked = [instruction for instruction in product.human_instructions if instruction.attributes]
        if not asked:
            continue
        upper, price_text = _price_upper(prices[product.asin], rng)
        for instruction in asked:
            text = instruction.text.rstrip(".") + price_text
            goals.append(_goal(product, text, instruction.attributes, instruction.options, upper))
    return goals


def shuffled(goals: Sequence[Goal]) -> tuple[Goal, ...]:
    """The goals in the benchmark's order, numbered."""
    order = list(goals)
    random.Random(SHUFFLE_SEED).shuffle(order)
    return tuple(replace(goal, index=index) for index, goal in enumerate(order))


def goal_from_mapping(given: Mapping[str, Any], index: int, products: Mapping[str, Product]) -> Goal:
    """A goal of one's own: `asin`, `instruction_text`, `attributes`, `goal_options`, `price_upper`, `weight`.

    Only `asin` and `instruction_text` are needed.

    Raises:
        SettingError: a field is missing or unknown, or the shop does not sell the product.
    """
    known = {"asin", "instruction_text", "attributes", "goal_options", "price_upper", "weight"}
    carried = {"category", "query", "name", "product_category"}
    if missing := {"asin", "instruction_text"} - set(given):
        raise SettingError(f"goals[{index}] lacks {', '.join(sorted(missing))}; legal: {', '.join(sorted(known))}.")
    if unknown := set(given) - known - carried:
        raise SettingError(f"goals[{index}]: {', '.join(sorted(unknown))} unknown; legal: {', '.join(sorted(known))}.")
    product = products.get(str(given["asin"]))
    if product is None:
        raise SettingError(f"goals[{index}]: the shop sells no product {given['asin']!r}.")
    raw: Any = given.get("goal_options") or {}
    options = dict(cast("Mapping[str, str]", raw)) if isinstance(raw, Mapping) else tuple(map(str, raw))
    upper = float(given.get("price_upper", NO_BOUND))
    goal = _goal(product, str(given["instruction_text"]), tuple(given.get("attributes", ())), options, upper)
    return replace(goal, index=index, weight=float(given.get("weight", 1.0)))


def split_range(split: str, products: int, goals: int) -> range:
    """Which goals a split holds.

    The full set (10,000 products or more): test 0-499, dev 500-1499, train from 1500. The small set (500 or more):
    test 0-499, train from 500. A smaller shop of one's own: test the first fifth, train the rest.

    Raises:
        SettingError: this shop has no such split, or it holds no goal.
    """
    if products >= 10_000:
        bounds = {"test": (0, 500), "dev": (500, 1500), "train": (1500, goals)}
    else:
        test = 500 if products >= 500 else goals // 5
        bounds = {"test": (0, test), "train": (test, goals)}
    if split not in bounds:
        raise SettingError(f"split={split!r}: this shop of {products} products has {', '.join(map(repr, bounds))}.")
    chosen = range(goals)[slice(*bounds[split])]
    if not chosen:
        raise SettingError(f"split={split!r} would begin at goal {bounds[split][0]}, but this shop has {goals} goals.")
    return chosen


def _price_upper(price: float, rng: random.Random) -> tuple[float, str]:
    bounds = price_bounds(price)
    if len(bounds) < 2:
        return NO_BOUND, ""
    upper = max(rng.sample(bounds, 2))
    return upper, f", and price lower than {upper:.2f} dollars"


def _goal(product: Product, text: str, attributes: tuple[str, ...], options: GoalOptions, upper: float) -> Goal:
    return Goal(
        index=0,
        asin=product.asin,
        title=product.title,
        query=product.query,
        product_category=product.product_category,
        instruction=text,
        attributes=attributes,
        options=options,
        price_upper=upper,
        weight=1.0,
    )


def _weight(attributes: tuple[str, ...], counts: Counter[str]) -> float:
    return sum(1.0 / counts[attribute] for attribute in attributes) / len(attributes) if attributes else 0.0
