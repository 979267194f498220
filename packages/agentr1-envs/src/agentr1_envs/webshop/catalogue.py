"""The catalogue: all products with their search, found, read and indexed once a process, read-only, shared.

Looked for, in this order: the `data=` argument, the folder `webshop` in AGENTR1_DATA, in the user's data folder, and
the project's own small shop.
"""

import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, cast

from agentr1_envs.errors import DataNotFoundError, DataRowError, SettingError
from agentr1_envs.loader import BUNDLED, ENVIRONMENT_VARIABLE, user_folder
from agentr1_envs.once import OncePerProcess
from agentr1_envs.rows import Row
from agentr1_envs.samples import small_shop
from agentr1_envs.webshop.index_store import stored_index
from agentr1_envs.webshop.nouns import check_nouns, title_nouns
from agentr1_envs.webshop.official import PAIRS, find_official, read_official
from agentr1_envs.webshop.prepared import check_prepared
from agentr1_envs.webshop.products import Product, read_product, unique_products
from agentr1_envs.webshop.search_index import SearchIndex, build_index

NAME = "webshop"
OWN_NAMES = ("catalogue.jsonl", "catalogue.jsonl.gz")
LARGE = 10_000
"""From this many products on the search index is kept on disk."""

_SUFFIXES = (".jsonl", ".jsonl.gz")
_OPENED = OncePerProcess["Catalogue"](kept=4)


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Products in their order, and their search."""

    products: tuple[Product, ...]
    index: SearchIndex
    """Over the products by asin, since that is how the published search orders equal scores."""
    source: str
    """Where they came from: a path, or "bundled sample"."""
    tagger: str = ""
    """The spaCy pipeline that finds the nouns of titles which bring none; empty when every title does."""

    def nouns(self, product: Product) -> tuple[str, ...]:
        """Lower-case nouns of a product's title, in order, with repeats."""
        return title_nouns(product, self.tagger)

    @cached_property
    def by_asin(self) -> dict[str, Product]:
        """Asin to product, in the order of asins."""
        return {product.asin: product for product in _sorted(self.products)}

    @cached_property
    def _indexed(self) -> tuple[Product, ...]:
        return tuple(self.by_asin.values())

    def search(self, query: str, hits: int) -> tuple[Product, ...]:
        """The best products for a query, at most `hits`."""
        return tuple(self._indexed[number] for number in self.index.search(query, hits)[0])


def find_catalogue(data: str | os.PathLike[str] | None) -> Path | None:
    """The catalogue file; None means the bundled one.

    Raises:
        DataNotFoundError: `data` or AGENTR1_DATA names a place without one.
    """
    if data is not None:
        if str(data) == BUNDLED:
            return None
        place = Path(data).expanduser()
        return catalogue_in(place) or _missing(place, f"data={str(data)!r}")
    if configured := os.environ.get(ENVIRONMENT_VARIABLE):
        folder = Path(configured).expanduser()
        if not folder.is_dir() or (folder / NAME).is_dir():
            place = folder / NAME
            return catalogue_in(place) or _missing(place, f"{ENVIRONMENT_VARIABLE}={configured!r}")
    return catalogue_in(user_folder() / NAME)


def open_catalogue(path: Path | None, tagger: str | None = None) -> Catalogue:
    """The catalogue of a file that `find_catalogue` gave; opened once a process.

    Args:
        path: the file; None opens the bundled one.
        tagger: the spaCy pipeline for titles without nouns, see `find_tagger`.

    Raises:
        DataRowError: a bad row. DataMismatchError: the file is not the one that was published or prepared.
        DependencyMissingError: nouns are missing and spaCy is too. SettingError: `tagger` has no effect.
    """
    if path is None:
        return _OPENED.get((BUNDLED, tagger), lambda: _open_bundled(tagger))
    status = path.stat()
    return _OPENED.get((path, status.st_mtime_ns, status.st_size, tagger), lambda: _open_file(path, tagger))


def read_catalogue(path: Path) -> tuple[Product, ...]:
    """The products of a catalogue file of one JSON object a line, packed with gzip or not.

    Raises:
        DataRowError: a bad row. SettingError: there is no row, or the file is of another kind.
    """
    products = tuple(own_products(path))
    if not products:
        raise SettingError(f"{path} holds no product.")
    return products


def own_products(path: Path, skipped: list[str] | None = None) -> Iterator[Product]:
    """The products of a catalogue file one after another.

    Args:
        path: the file.
        skipped: where bad rows are noted, a line each, and left out; None refuses them.

    Raises:
        DataRowError: a bad row. SettingError: the file is of another kind.
    """
    if not path.name.endswith(_SUFFIXES):
        raise SettingError(
            f"{path}: a catalogue is a file {' or '.join('*' + suffix for suffix in _SUFFIXES)}, or {', '.join(PAIRS)}."
        )

    def products() -> Iterator[Product]:
        for row in _rows(path):
            try:
                if isinstance(row, DataRowError):
                    raise row
                yield read_product(row)
            except DataRowError as error:
                if skipped is None:
                    raise
                skipped.append(str(error))

    return unique_products(products())


def _rows(path: Path) -> Iterator[Row | DataRowError]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                item: Any = json.loads(line)
            except (json.JSONDecodeError, UnicodeDecodeError) as error:
                yield DataRowError(path, number, "(whole line)", f"is no JSON: {error}")
                continue
            if isinstance(item, dict):
                yield Row(path, number, cast("dict[str, Any]", item))
            else:
                yield DataRowError(path, number, "(whole line)", f"needs an object, found {type(item).__name__}.")


def _open_bundled(tagger: str | None) -> Catalogue:
    rows = enumerate(small_shop.products(), start=1)
    products = tuple(unique_products(read_product(Row(Path(BUNDLED), number, fields)) for number, fields in rows))
    check_nouns(products, tagger)
    return Catalogue(products, _index(products), f"{BUNDLED} sample")


def _open_file(path: Path, tagger: str | None = None) -> Catalogue:
    check_prepared(path)
    products = read_official(path) if path.name in PAIRS else read_catalogue(path)
    found = check_nouns(products, tagger)
    if len(products) < LARGE:
        return Catalogue(products, _index(products), str(path), found)
    status = path.stat()
    name = hashlib.sha256(f"{path} {status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:16]
    return Catalogue(products, stored_index(name, lambda: _index(products)), str(path), found)


def _index(products: tuple[Product, ...]) -> SearchIndex:
    return build_index(product.document for product in _sorted(products))


def _sorted(products: Iterable[Product]) -> list[Product]:
    return sorted(products, key=lambda product: product.asin)


def catalogue_in(place: Path) -> Path | None:
    """The catalogue a file or folder holds; None without one."""
    if place.is_file():
        return place.resolve()
    if not place.is_dir():
        return None
    for name in OWN_NAMES:
        if (place / name).is_file():
            return (place / name).resolve()
    if official := find_official(place):
        return official.resolve()
    others = [path for path in place.iterdir() if path.name.endswith(_SUFFIXES)]
    return others[0].resolve() if len(others) == 1 else None


def _missing(place: Path, given: str) -> NoReturn:
    what = "holds no catalogue" if place.is_dir() else "does not exist"
    raise DataNotFoundError(
        f"{given}: {place.absolute()} {what} (looked for {', '.join((*OWN_NAMES, *PAIRS))}, or one file "
        f"*.jsonl). Fetch it with `agentr1-envs download {NAME} --out {place}`, or make it from files you have with "
        f"`agentr1-envs prepare {NAME} --source PATH --out {place}`; data='{BUNDLED}' plays in the project's own small "
        "shop."
    )
