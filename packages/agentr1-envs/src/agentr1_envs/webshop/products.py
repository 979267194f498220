"""What the shop sells: `Product`, and reading one from a row of a catalogue file.

A row has `asin`; `name`, `description`, `bullets`, `pricing` (one number, or the two ends of a range), `category`,
`product_category` (parts between single guillemets), `query`, `options`, `attributes`, `instruction`,
`instruction_attributes`, `human_instructions` and `title_nouns` are optional.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from agentr1_envs.rows import Row

LONGEST_ASIN = 10
UNKNOWN_PRICE = (100.0,)
NO_ATTRIBUTES = ("DUMMY_ATTR",)
"""What the benchmark gives a product without attributes; it is no word of any goal."""

_NOT_A_PRICE = re.compile(r"[^\d.]")


@dataclass(frozen=True, slots=True)
class HumanInstruction:
    """What a person wrote to ask for a product."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """One product, cleaned as the benchmark does."""

    asin: str
    title: str
    description: str = ""
    bullets: tuple[str, ...] = ()
    pricing: tuple[float, ...] = UNKNOWN_PRICE
    """The price, or the lower and the upper end of a range."""
    category: str = ""
    product_category: str = ""
    query: str = ""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Name to values, both lower-case, in the data's order."""
    attributes: tuple[str, ...] = NO_ATTRIBUTES
    instruction: str = ""
    """What synthetic goals ask for; empty when the product is no goal."""
    instruction_attributes: tuple[str, ...] = ()
    human_instructions: tuple[HumanInstruction, ...] = ()
    nouns: tuple[str, ...] | None = None
    """The title's nouns, lower-case, in order, with repeats; None where they have to be found first."""

    @property
    def price_tag(self) -> str:
        """The price as the pages show it."""
        return " to ".join(f"${price}" for price in self.pricing)

    @property
    def document(self) -> str:
        """What the search sees."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join([self.title, self.description, "".join(self.bullets[:1]), options]).lower()


def parse_pricing(text: str) -> tuple[float, ...]:
    """The one or two prices of "$12.99" or "$12.99 to $19.99"; (100.0,) where there is none."""
    digits = [_NOT_A_PRICE.sub("", part) for part in text.split("$")[1:]]
    return tuple(float(price) for price in digits if price.strip("."))[:2] or UNKNOWN_PRICE


def clean_options(options: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Names and values as the pages show them: lower-case, values stripped, "/" as " | ", repeats kept."""
    return {
        name.lower(): tuple(value.strip().replace("/", " | ").lower() for value in values)
        for name, values in options.items()
    }


def unique_products(products: Iterable[Product]) -> Iterator[Product]:
    """The products the benchmark keeps: no asin "nan", none longer than ten characters, the first of each asin."""
    seen: set[str] = set()
    for product in products:
        if product.asin != "nan" and len(product.asin) <= LONGEST_ASIN and product.asin not in seen:
            seen.add(product.asin)
            yield product


def read_product(row: Row) -> Product:
    """The product of one row of a catalogue file.

    Raises:
        DataRowError: a field is missing or mistyped.
    """
    options = row.section("options")
    return Product(
        asin=row.text("asin"),
        title=text(row, "name"),
        description=text(row, "description"),
        bullets=text_list(row, "bullets"),
        pricing=_numbers(row, "pricing")[:2] or UNKNOWN_PRICE,
        category=text(row, "category"),
        product_category=text(row, "product_category"),
        query=text(row, "query").lower().strip(),
        options=clean_options({name: text_list(options, name) for name in options.fields}),
        attributes=text_list(row, "attributes") if row.has("attributes") else NO_ATTRIBUTES,
        instruction=text(row, "instruction"),
        instruction_attributes=text_list(row, "instruction_attributes"),
        human_instructions=human_instructions(row, "human_instructions"),
        nouns=text_list(row, "title_nouns") if row.has("title_nouns") else None,
    )


def product_row(product: Product) -> dict[str, Any]:
    """The row of a catalogue file that `read_product` reads back as this product."""
    asked = [
        {
            "instruction": human.text,
            "instruction_attributes": list(human.attributes),
            "instruction_options": list(human.options),
        }
        for human in product.human_instructions
    ]
    row: dict[str, Any] = {
        "asin": product.asin,
        "name": product.title,
        "description": product.description,
        "bullets": list(product.bullets),
        "pricing": list(product.pricing),
        "category": product.category,
        "product_category": product.product_category,
        "query": product.query,
        "options": {name: list(values) for name, values in product.options.items()},
        "attributes": list(product.attributes),
        "instruction": product.instruction,
        "instruction_attributes": list(product.instruction_attributes),
        "human_instructions": asked,
    }
    return row if product.nouns is None else {**row, "title_nouns": list(product.nouns)}


def human_instructions(row: Row, field: str) -> tuple[HumanInstruction, ...]:
    """The instructions of people in a field.

    Raises:
        DataRowError: one has no text, or is mistyped.
    """
    found: list[HumanInstruction] = []
    for item in row.items(field):
        if not isinstance(item, dict):
            raise row.error(field, "needs a list of objects with 'instruction', 'instruction_attributes' and so on.")
        part = Row(row.path, row.line, cast("dict[str, Any]", item))
        attributes, options = text_list(part, "instruction_attributes"), text_list(part, "instruction_options")
        found.append(HumanInstruction(part.text("instruction"), attributes, options))
    return tuple(found)


def text(row: Row, field: str) -> str:
    """A string that may be blank or missing.

    Raises:
        DataRowError: it is something else.
    """
    value = row.fields.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise row.error(field, f"needs a string, found {type(value).__name__}.")
    return value


def text_list(row: Row, field: str) -> tuple[str, ...]:
    """A list of strings; empty when missing.

    Raises:
        DataRowError: it is something else.
    """
    values = row.items(field)
    if any(not isinstance(value, str) for value in values):
        raise row.error(field, "needs a list of strings.")
    return tuple(values)


def _numbers(row: Row, field: str) -> tuple[float, ...]:
    values = row.items(field)
    if any(isinstance(value, bool) or not isinstance(value, int | float) or value < 0 for value in values):
        raise row.error(field, "needs a list of one or two prices, such as [12.99] or [12.99, 19.99].")
    return tuple(float(value) for value in values)
