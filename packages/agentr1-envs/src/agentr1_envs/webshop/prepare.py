"""The benchmark's files, or a catalogue of one's own, in; one catalogue with the nouns of its titles out.

The catalogue appears whole or not at all, and a record of its sources beside it; see `prepared.py`.
"""

import gzip
import json
import os
from collections.abc import Iterable
from pathlib import Path

from agentr1_envs.errors import DataNotFoundError, SettingError
from agentr1_envs.loader import OnBadRow
from agentr1_envs.webshop.catalogue import OWN_NAMES, catalogue_in, own_products
from agentr1_envs.webshop.nouns import find_tagger, tagger_label, with_nouns
from agentr1_envs.webshop.official import PAIRS, find_official, official_products, verify, verify_beside
from agentr1_envs.webshop.prepared import CATALOGUE_NAME, RECORD_NAME, PreparedCatalogue, write_record
from agentr1_envs.webshop.products import Product, product_row


def prepare_catalogue(
    source: Path, out: Path, *, tagger: str | None = None, on_bad_row: OnBadRow = "refuse"
) -> PreparedCatalogue:
    """Write ``<out>/catalogue.jsonl.gz``. Products pass one after another: memory does not grow with their texts.

    Args:
        source: a folder with the benchmark's files (or its products file), or a catalogue of one's own.
        out: a folder.
        tagger: the spaCy pipeline for titles that bring no nouns, see `find_tagger`.
        on_bad_row: "refuse" or "skip".

    Raises:
        DataNotFoundError: `source` holds no catalogue. DataMismatchError: a file is not the published one.
        DataRowError: a bad row. DependencyMissingError: nouns have to be found, and spaCy is not installed.
    """
    path = (find_official(source) if source.is_dir() else None) or catalogue_in(source)
    if path is None:
        looked_for = ", ".join((*PAIRS, *OWN_NAMES))
        what = "holds no catalogue" if source.is_dir() else "does not exist"
        raise DataNotFoundError(f"--source {source}: {source.absolute()} {what} (looked for {looked_for}).")
    other = next((out / name for name in OWN_NAMES if name != CATALOGUE_NAME and (out / name).is_file()), None)
    if other is not None:
        raise SettingError(f"--out {out}: {other} is there and would be read instead; give another folder.")
    skipped: list[str] | None = [] if on_bad_row == "skip" else None
    asked: list[str] = []
    if path.name in PAIRS:
        sources = verify_beside(path)
        products = official_products(path, skipped)
    else:
        sources = (verify(path),)
        products = own_products(path, skipped)
    out.mkdir(parents=True, exist_ok=True)
    count = _write(with_nouns(_noted(products, asked), tagger), out)
    used = tagger_label(find_tagger(tagger)) if asked else ""
    write_record(out, count, sources, used)
    return PreparedCatalogue(out / CATALOGUE_NAME, count, sources, used, tuple(skipped or ()))


def _noted(products: Iterable[Product], asked: list[str]) -> Iterable[Product]:
    """Pass the products on, and note the first one whose nouns have to be found."""
    for product in products:
        if product.nouns is None and not asked:
            asked.append(product.asin)
        yield product


def _write(products: Iterable[Product], out: Path) -> int:
    unfinished = out / f"{CATALOGUE_NAME}.unfinished"
    count = 0
    try:
        with unfinished.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            for product in products:
                packed.write(json.dumps(product_row(product), ensure_ascii=False).encode() + b"\n")
                count += 1
        if not count:
            raise SettingError("the source holds no product.")
        (out / RECORD_NAME).unlink(missing_ok=True)  # from here on an interruption leaves a catalogue without a record
        os.replace(unfinished, out / CATALOGUE_NAME)
    finally:
        unfinished.unlink(missing_ok=True)
    return count
