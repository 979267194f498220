from collections.abc import Mapping
from typing import Any

import pytest
from agentr1_envs.webshop.goals import Goal, GoalOptions
from agentr1_envs.webshop.products import Product
from agentr1_envs.webshop.reward import (
    COLOURS,
    count_attributes,
    count_options,
    match_type,
    normalize_color,
    score_purchase,
    token_set_ratio,
)


def product_of(given: dict[str, Any]) -> Product:
    """A product of a golden case; its name only matters by its nouns, which stand apart."""
    return Product(
        asin="",
        title=given.get("Title", ""),
        description=given.get("Description", ""),
        bullets=tuple(given.get("BulletPoints", ())),
        product_category=given.get("product_category", ""),
        query=given.get("query", ""),
        attributes=tuple(given.get("Attributes", ())),
    )


def options_of(given: Any) -> GoalOptions:
    return given if isinstance(given, Mapping) else tuple(given)


def goal_of(given: dict[str, Any]) -> Goal:
    return Goal(
        index=0,
        asin="",
        title=given.get("name", ""),
        query=given["query"],
        product_category=given["product_category"],
        instruction="",
        attributes=tuple(given.get("attributes", ())),
        options=options_of(given.get("goal_options", {})),
        price_upper=given.get("price_upper", 0.0),
        weight=1.0,
    )


def test_types_match_as_published(golden: Any) -> None:
    for case in golden("rewards")["type"]:
        nouns = (case["purchased_nouns"], case["goal_nouns"])
        kind = match_type(product_of(case["purchased"]), goal_of(case["goal"]), nouns)
        assert {name: getattr(kind, name) for name in case["expect"]} == case["expect"], case["label"]


def test_attributes_match_as_published(golden: Any) -> None:
    for case in golden("rewards")["attribute"]:
        count = count_attributes(product_of(case["purchased"]), case["goal_attributes"])
        assert count == case["expect"]["num_attr_matches"], case["label"]
        assert count / len(case["goal_attributes"]) == case["expect"]["r_att"]


def test_options_match_as_published(golden: Any) -> None:
    for case in golden("rewards")["option"]:
        wanted = options_of(case["goal_options"])
        count = count_options(case["purchased_options"], wanted)
        assert count == case["expect"]["num_option_matches"], case["label"]
        assert (count / len(wanted) if wanted else None) == case["expect"]["r_option"]


def test_rewards_and_their_parts_are_as_published(golden: Any) -> None:
    for case in golden("rewards")["reward"]:
        nouns = (case["purchased_nouns"], case["goal_nouns"])
        chosen = tuple(case["options"].values())
        score = score_purchase(product_of(case["purchased"]), goal_of(case["goal"]), nouns, case["price"], chosen)
        assert score.reward == case["expect"]["reward"], case["label"]
        for name, value in case["expect"]["info"].items():
            owner = score.kind if hasattr(score.kind, name) else score
            if value is None:
                assert (getattr(owner, name), getattr(owner, f"w{name[1:]}")) == (1.0, 0.0), case["label"]
            else:
                assert getattr(owner, name) == value, (case["label"], name)


def test_colours_and_ratios_are_as_published(golden: Any) -> None:
    cases = golden("rewards")
    assert list(COLOURS) == cases["color_set"]
    for text, expected in cases["normalize_color"]:
        assert normalize_color(text) == expected
    for first, second, expected in cases["token_set_ratio"]:
        pair = second if isinstance(second, str) else str(tuple(second))
        assert token_set_ratio(first, pair) == expected


@pytest.mark.parametrize(("rule", "count"), [("upstream", 1), ("values", 2)])
def test_comparing_values_mends_what_pairs_miss(rule: Any, count: int) -> None:
    assert count_options(["r.brown2070", "7"], {"color": "r.brown2070", "size": "7"}, rule) == count
