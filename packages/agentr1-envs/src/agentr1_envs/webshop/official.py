"""The benchmark's own files: where they are in a folder, whether they are the published ones, and reading them.

Products stand in `items_shuffle.json` (the full set) or `items_shuffle_1000.json` (the small one), attributes and
synthetic instructions in `items_ins_v2.json` or `items_ins_v2_1000.json`, what people wrote in `items_human_ins.json`.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from agentr1_envs.errors import DataMismatchError, DataNotFoundError, DataRowError, SettingError
from agentr1_envs.rows import Row
from agentr1_envs.webshop.json_array import array_elements
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

ShopSize = Literal["small", "full"]
SIZES: dict[ShopSize, str] = {"small": "items_shuffle_1000.json", "full": "items_shuffle.json"}
"""A set's products file."""


@dataclass(frozen=True, slots=True)
class Published:
    """A file as its authors published it; what is None is not known, and not checked."""

    size: int | None = None
    """Bytes."""
    sha256: str | None = None
    drive_id: str = ""
    """Of the file on Google Drive, as `setup.sh` of the benchmark's repository (princeton-nlp/WebShop) names it."""


PUBLISHED = {
    "items_shuffle.json": Published(
        5_479_720_229,
        "2ef591d65df3af89e972ab72468eb82cbf124d876552d9f3678667edd620a6c8",
        "1A2whVgOO0euk5O13n2iYDM0bQRkkRduB",
    ),
    "items_shuffle_1000.json": Published(
        4_467_013,
        "30a4765c3a327af72d9a9a95a6b2486d516f0fa1d3ecd83681901ce82a21b269",
        "1EgHdxQ_YxqIQlvvq5iKlCrkEKR6-j0Ib",
    ),
    "items_ins_v2.json": Published(
        186_295_270,
        "1d36af476bdb8f82a5da62bd8acdabe54cd8de2fa84010d37da5c4890feb447e",
        "1s2j6NgHljiZzQNL3veZaAiyW_qDEgBNi",
    ),
    "items_ins_v2_1000.json": Published(
        147_099,
        "f88a36314a397b53b3d9c3fa5878e5f7b26d35019a51ec83fbedeca61a948f6f",
        "1IduG0xl544V_A_jv3tHXC0kyFi7PnyBu",
    ),
    "items_human_ins.json": Published(
        5_137_548,
        "cf78667548a71786e1d9049c24b802e48e1084ad4bb021cae56ce1f6d96954a3",
        "14Kb5SPBk_jfdLZ_CDBNitW98QLDlKR5O",
    ),
}
"""Sizes and checksums that several public repositories which fetched the files record, and agree on."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file that was read: what identifies its content."""

    name: str
    size: int
    sha256: str
    published: bool
    """It is the published file, byte for byte."""


def find_official(folder: Path) -> Path | None:
    """The products file in a folder; None without one."""
    return next((folder / name for name in PAIRS if (folder / name).is_file()), None)


def verify(path: Path, published: Published | None = None) -> FileRecord:
    """Compare a file with what is known of the published one of its name.

    Raises:
        DataMismatchError: size or checksum differ.
    """
    known = PUBLISHED.get(path.name, Published()) if published is None else published
    size = path.stat().st_size
    remedy = "fetch it again, or, if you changed it on purpose, write a catalogue of your own (the guide on WebShop)"
    if known.size is not None and size != known.size:
        raise DataMismatchError(f"{path} has {size:,} bytes, the published file {known.size:,}; {remedy}.")
    found = sha256_of(path)
    if known.sha256 is not None and found != known.sha256:
        raise DataMismatchError(f"{path} has sha256 {found}, the published file {known.sha256}; {remedy}.")
    return FileRecord(path.name, size, found, published=known.sha256 is not None)


def sha256_of(path: Path) -> str:
    """The checksum of a file's content, in hexadecimal digits."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def verify_beside(path: Path) -> tuple[FileRecord, ...]:
    """Check a products file and the files beside it that say more about its products.

    Raises:
        DataNotFoundError: the attributes file is not there. DataMismatchError: a file is not the published one.
    """
    beside = path.with_name(PAIRS[path.name])
    if not beside.is_file():
        raise DataNotFoundError(f"{beside} is not there; {path.name} needs it beside it, and {HUMAN} for human goals.")
    return tuple(verify(place) for place in (beside, path.with_name(HUMAN), path) if place.is_file())


def read_official(path: Path) -> tuple[Product, ...]:
    """The products of an official file, with what the files beside it say about them, all checked first.

    Raises:
        DataNotFoundError: the attributes file is not there. DataMismatchError: a file is not the published one.
        DataRowError: a bad entry. SettingError: a file is no JSON of the expected shape.
    """
    verify_beside(path)
    return tuple(official_products(path))


def official_products(path: Path, skipped: list[str] | None = None) -> Iterator[Product]:
    """The products of an official file one after another; that file is never held whole. Checks no checksum.

    Args:
        path: the products file.
        skipped: where bad entries are noted, a line each, and left out; None refuses them.

    Raises:
        DataRowError: a bad entry. SettingError: a file is no JSON of the expected shape.
    """
    human = path.with_name(HUMAN)
    about = _load(path.with_name(PAIRS[path.name]))
    written = _load(human) if human.is_file() else {}

    def products() -> Iterator[Product]:
        for number, item in enumerate(array_elements(path), start=1):
            row = Row(path, number, cast("dict[str, Any]", item) if isinstance(item, dict) else {})
            try:
                yield _read(row, about, written)
            except DataRowError as error:
                if skipped is None:
                    raise
                skipped.append(str(error))

    return unique_products(products())


def _read(row: Row, about: dict[str, Any], written: dict[str, Any]) -> Product:
    bullets = row.fields.get("small_description")
    product = Product(
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
    said = Row(row.path.with_name(PAIRS[row.path.name]), row.line, about.get(product.asin) or {})
    asked = Row(row.path.with_name(HUMAN), row.line, {product.asin: written.get(product.asin)})
    return replace(
        product,
        attributes=text_list(said, "attributes") if "attributes" in said.fields else NO_ATTRIBUTES,
        instruction=text(said, "instruction"),
        instruction_attributes=text_list(said, "instruction_attributes"),
        human_instructions=human_instructions(asked, product.asin),
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


def _load(path: Path) -> dict[str, Any]:
    try:
        content: Any = json.loads(path.read_bytes())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise SettingError(f"{path}: needs an object by asin, found {type(content).__name__}.")
    return cast("dict[str, Any]", content)
