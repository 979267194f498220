"""The benchmark's own files: where they are in a folder, whether they are the published ones, and reading them.

Products stand in `items_shuffle.json` (the full set) or `items_shuffle_1000.json` (the small one), attributes and
synthetic instructions in `items_ins_v2.json` or `items_ins_v2_1000.json`, what people wrote in `items_human_ins.json`.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from agentr1_envs.errors import DataMismatchError, DataNotFoundError, SettingError
from agentr1_envs.rows import Row
from agentr1_envs.webshop.products import (
    NO_ATTRIBUTES,
    Product,
    clean_options,
    human_instructions,
    parse_pricing,
    text,
    text_list,
    unique_products,
)

PAIRS = {"items_shuffle.json": "items_ins_v2.json", "items_shuffle_1000.json": "items_ins_v2_1000.json"}
"""Products file to attributes file; the full set is looked for first."""
HUMAN = "items_human_ins.json"


@dataclass(frozen=True, slots=True)
class Published:
    """What is known of a published file; None where nothing reliable is, and then nothing is checked."""

    size: int | None = None
    sha256: str | None = None


PUBLISHED = {
    "items_shuffle.json": Published(),
    "items_shuffle_1000.json": Published(),
    "items_ins_v2.json": Published(),
    "items_ins_v2_1000.json": Published(147_099, "f88a36314a397b53b3d9c3fa5878e5f7b26d35019a51ec83fbedeca61a948f6f"),
    "items_human_ins.json": Published(),
}
"""Sizes in bytes and checksums of the files as their authors published them."""


def find_official(folder: Path) -> Path | None:
    """The products file in a folder; None without one."""
    return next((folder / name for name in PAIRS if (folder / name).is_file()), None)


def verify(path: Path, published: Published | None = None) -> bool:
    """Compare a file with what is known of the published one of its name; false when nothing is known.

    Raises:
        DataMismatchError: size or checksum differ.
    """
    known = PUBLISHED.get(path.name, Published()) if published is None else published
    size = path.stat().st_size
    if known.size is not None and size != known.size:
        raise DataMismatchError(f"{path} has {size:,} bytes, the published file {known.size:,}; fetch it again.")
    if known.sha256 is None:
        return known.size is not None
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != known.sha256:
        raise DataMismatchError(f"{path} has sha256 {found}, the published file {known.sha256}; fetch it again.")
    return True


def read_official(path: Path) -> tuple[Product, ...]:
    """The products of an official file, with what the files beside it say about them.

    Raises:
        DataNotFoundError: the attributes file is not there. DataMismatchError: a file is not the published one.
        DataRowError: a bad entry. SettingError: a file is no JSON of the expected shape.
    """
    beside = path.with_name(PAIRS[path.name])
    if not beside.is_file():
        raise DataNotFoundError(f"{beside} is not there; {path.name} needs it beside it, and {HUMAN} for human goals.")
    human = path.with_name(HUMAN)
    present = [place for place in (path, beside, human) if place.is_file()]
    for place in present:
        verify(place)
    about: dict[str, Any] = _load(beside, dict)
    written: dict[str, Any] = _load(human, dict) if human in present else {}
    products: list[Product] = []
    for number, item in enumerate(_load(path, list), start=1):
        row = Row(path, number, cast("dict[str, Any]", item) if isinstance(item, dict) else {})
        product = _read(row)
        asked = Row(human, number, {product.asin: written.get(product.asin)})
        products.append(
            replace(
                _with_instruction(product, Row(beside, number, about.get(product.asin) or {})),
                human_instructions=human_instructions(asked, product.asin),
            )
        )
    return unique_products(products)


def _read(row: Row) -> Product:
    bullets = row.fields.get("small_description")
    return Product(
        asin=row.text("asin"),
        title=text(row, "name"),
        description=text(row, "full_description"),
        bullets=(bullets,) if isinstance(bullets, str) else text_list(row, "small_description"),
        pricing=parse_pricing(text(row, "pricing")),
        category=text(row, "category"),
        product_category=text(row, "product_category"),
        query=text(row, "query").lower().strip(),
        options=clean_options(_option_values(row)),
    )


def _option_values(row: Row) -> dict[str, list[str]]:
    groups: Any = row.fields.get("customization_options") or {}
    if not isinstance(groups, dict):
        raise row.error("customization_options", "needs an object of lists of {'value'}.")
    values: dict[str, list[str]] = {}
    for name, contents in cast("dict[str, Any]", groups).items():
        if contents is None:
            continue
        try:
            values[name] = [str(content["value"]) for content in contents]
        except (TypeError, KeyError):
            raise row.error("customization_options", f"{name!r} needs a list of {{'value'}}.") from None
    return values


def _with_instruction(product: Product, row: Row) -> Product:
    return replace(
        product,
        attributes=text_list(row, "attributes") if "attributes" in row.fields else NO_ATTRIBUTES,
        instruction=text(row, "instruction"),
        instruction_attributes=text_list(row, "instruction_attributes"),
    )


def _load(path: Path, kind: type) -> Any:
    try:
        content: Any = json.loads(path.read_bytes())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, kind):
        shape = "a list of products" if kind is list else "an object by asin"
        raise SettingError(f"{path}: needs {shape}, found {type(content).__name__}.")
    return content
