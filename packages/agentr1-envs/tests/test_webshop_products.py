from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.errors import DataRowError
from agentr1_envs.rows import Row
from agentr1_envs.webshop.products import (
    HumanInstruction,
    Product,
    clean_options,
    parse_pricing,
    product_row,
    read_product,
    unique_products,
)


@pytest.mark.parametrize(
    ("text", "pricing"),
    [
        ("", (100.0,)),
        ("$12.99", (12.99,)),
        ("$1,299.00", (1299.0,)),
        ("$4.50 to $7", (4.5, 7.0)),
        ("$1$2$3", (1.0, 2.0)),
        ("free", (100.0,)),
    ],
)
def test_pricing(text: str, pricing: tuple[float, ...]) -> None:
    assert parse_pricing(text) == pricing


def test_price_tags() -> None:
    assert Product("a", "t").price_tag == "$100.0"
    assert Product("a", "t", pricing=(1.0, 2.5)).price_tag == "$1.0 to $2.5"


def test_options_are_cleaned() -> None:
    assert clean_options({"Color": [" Red/Blue ", "red", "RED"]}) == {"color": ("red | blue", "red", "red")}


def test_products_that_are_left_out() -> None:
    given = [Product("nan", "x"), Product("B1", "first"), Product("B1", "second"), Product("B1234567890", "long")]
    assert [product.title for product in unique_products(given)] == ["first"]


def test_a_product_is_read_back_from_its_row() -> None:
    asked = (HumanInstruction("tea.", ("fresh",), ("big",)),)
    whole = Product(
        "B1", "Tea", "Good.", ("One",), (4.5, 7.0), "grocery", "A \u203a B", "tea", {"size": ("s | m", "s | m")},
        ("fresh",), "Find tea", ("fresh",), asked, ("tea",),
    )  # fmt: skip
    for product in (whole, Product("B2", "Cup")):
        assert read_product(Row(Path("shop.jsonl"), 1, product_row(product))) == product


def test_the_document_of_a_product() -> None:
    product = Product("a", "Tea", "Good.", ("One", "Two"), options={"size": ("s", "m"), "color": ("red",)})
    assert product.document == "tea good. one size: s, m, and color: red"
    assert Product("a", "Tea").document == "tea   "


def read(**fields: Any) -> Product:
    return read_product(Row(Path("shop.jsonl"), 3, {"asin": "B1", "name": "Tea", **fields}))


def test_a_row_may_be_short() -> None:
    product = read()
    assert (product.pricing, product.attributes, product.nouns, product.options) == (
        (100.0,),
        ("DUMMY_ATTR",),
        None,
        {},
    )
    assert read(query=" Green Tea ", title_nouns=[]).query == "green tea"
    assert read(title_nouns=[]).nouns == ()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"asin": None}, "line 3, field 'asin'"),
        ({"pricing": ["1"]}, "field 'pricing'"),
        ({"options": {"size": "s"}}, "field 'size'"),
        ({"description": 3}, "needs a string, found int"),
        ({"human_instructions": ["buy"]}, "human_instructions"),
        ({"attributes": [1]}, "list of strings"),
    ],
)
def test_a_bad_row_names_its_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DataRowError, match=message):
        read(**fields)
