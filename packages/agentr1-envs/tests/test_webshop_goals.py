import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.webshop.catalogue import find_catalogue, open_catalogue
from agentr1_envs.webshop.goals import goal_from_mapping, human_goals, price_bounds, split_range, synthetic_goals
from agentr1_envs.webshop.products import HumanInstruction, Product
from agentr1_envs.webshop.shop import ShopSource

SHIRT = Product(
    asin="A1",
    title="Shirt",
    options={"size": ("s", "m"), "color": ("red", "blue", "red")},
    instruction="Find a shirt",
    instruction_attributes=("soft", "warm"),
)
SOCK = Product(asin="A2", title="Sock", instruction="Find a sock", instruction_attributes=("soft",))


def test_price_bounds_are_as_published(golden: Any) -> None:
    for price, bounds in golden("rewards")["price_upper_candidates"]:
        assert price_bounds(price) == bounds


def test_a_goal_for_each_combination() -> None:
    goals = synthetic_goals([SHIRT, SOCK, Product("A3", "Hat")], {"A1": 980.0, "A2": 12.0}, random.Random(0))
    assert [goal.instruction for goal in goals[:2]] == [
        "Find a shirt with color: red, and size: s",
        "Find a shirt with color: red, and size: m",
    ]
    assert Counter(goal.asin for goal in goals) == {"A1": 6, "A2": 1}
    assert {goal.price_upper for goal in goals[:6]} == {1_000_000.0}
    assert goals[6].price_upper in (30.0, 40.0, 50.0)
    assert goals[6].instruction == f"Find a sock, and price lower than {goals[6].price_upper:.2f} dollars"
    assert goals[0].weight == pytest.approx((1 / 7 + 1 / 6) / 2)
    assert goals[6].weight == pytest.approx(1 / 7)


def test_what_people_wrote() -> None:
    asked = (HumanInstruction("i want it.", ("soft",), ("red",)), HumanInstruction("or not", (), ()))
    (goal,) = human_goals([Product("A1", "Shirt", human_instructions=asked)], {"A1": 985.0}, random.Random(0))
    assert (goal.instruction, goal.options, goal.weight) == ("i want it", ("red",), 1.0)


def test_the_small_sets_goals_are_those_of_the_published_run(golden: Any, small_set: Path) -> None:
    traces = golden("traces")
    shop = ShopSource("test", small_set, "synthetic", traces["prices"]).shop()
    assert len(shop.goals) == 6910
    for episode in traces["episodes"]:
        goal, wanted = shop.goals[episode["goal_index"]], episode["goal"]
        assert goal.index == episode["goal_index"]
        assert goal.asin == wanted["asin"]
        assert (goal.title, goal.query, goal.product_category) == (
            wanted["name"],
            wanted["query"],
            wanted["product_category"],
        )
        assert goal.instruction == wanted["instruction_text"]
        assert (list(goal.attributes), goal.options) == (wanted["attributes"], wanted["goal_options"])
        assert (goal.price_upper, goal.weight) == (wanted["price_upper"], pytest.approx(wanted["weight"], rel=1e-12))


def test_the_small_sets_human_goals(small_set: Path) -> None:
    source = ShopSource("test", small_set, "human", None)
    assert len(source()) == len(source.shop().goals) == 13
    with pytest.raises(SettingError, match="13 goals"):
        ShopSource("train", small_set, "human", None)()


def test_splits_of_the_small_set_share_products(small_set: Path) -> None:
    shop = ShopSource("test", small_set, "synthetic", None).shop()
    test, train = ({task.answers[0] for task in shop.split(name)} for name in ("test", "train"))
    assert (len(shop.split("test")), len(shop.split("train"))) == (500, 6410)
    assert (len(test & train), len(test)) == (127, 146)


@pytest.mark.parametrize(
    ("split", "products", "goals", "expected"),
    [
        ("test", 1_000_000, 12_000, range(500)),
        ("dev", 1_000_000, 12_000, range(500, 1500)),
        ("train", 1_000_000, 12_000, range(1500, 12_000)),
        ("test", 1000, 6910, range(500)),
        ("train", 1000, 6910, range(500, 6910)),
        ("test", 40, 100, range(20)),
        ("train", 40, 100, range(20, 100)),
    ],
)
def test_splits(split: str, products: int, goals: int, expected: range) -> None:
    assert split_range(split, products, goals) == expected


def test_a_split_that_is_not_there() -> None:
    with pytest.raises(SettingError, match="'test', 'train'"):
        split_range("dev", 1000, 6910)
    with pytest.raises(SettingError, match="goal 500"):
        split_range("train", 1000, 13)


def test_goals_of_ones_own() -> None:
    products = open_catalogue(find_catalogue("bundled")).by_asin
    asin = next(iter(products))
    goal = goal_from_mapping({"asin": asin, "instruction_text": "buy", "goal_options": ["red"]}, 3, products)
    assert (goal.index, goal.options, goal.title) == (3, ("red",), products[asin].title)
    for given, message in (
        ({"asin": asin}, "lacks instruction_text"),
        ({"asin": "B0", "instruction_text": "buy"}, "sells no product 'B0'"),
        ({"asin": asin, "instruction_text": "buy", "price": 3}, "price unknown"),
    ):
        with pytest.raises(SettingError, match=message):
            goal_from_mapping(given, 0, products)
