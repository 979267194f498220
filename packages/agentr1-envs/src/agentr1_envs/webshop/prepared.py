"""The record beside a prepared catalogue: what it was made from, and the checksum that says it is still the same."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentr1_envs.errors import DataMismatchError
from agentr1_envs.webshop.official import FileRecord, sha256_of

CATALOGUE_NAME = "catalogue.jsonl.gz"
RECORD_NAME = "catalogue.sources.json"


@dataclass(frozen=True, slots=True)
class PreparedCatalogue:
    """What `prepare webshop` wrote."""

    path: Path
    products: int
    sources: tuple[FileRecord, ...]
    tagger: str
    """The spaCy pipeline that found nouns; empty when every product brought its own."""
    skipped: tuple[str, ...]
    """One line for each row that was left out."""


def write_record(folder: Path, products: int, sources: Sequence[FileRecord], tagger: str) -> None:
    """Note what the catalogue in a folder is and what it was made from.

    Raises:
        OSError: the folder cannot be written.
    """
    path = folder / CATALOGUE_NAME
    record = {
        "catalogue": {"name": path.name, "size": path.stat().st_size, "sha256": sha256_of(path)},
        "products": products,
        "tagger": tagger,
        "sources": [asdict(source) for source in sources],
    }
    unfinished = folder / f"{RECORD_NAME}.unfinished"
    try:
        unfinished.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        os.replace(unfinished, folder / RECORD_NAME)
    finally:
        unfinished.unlink(missing_ok=True)


def check_prepared(path: Path) -> None:
    """Compare a prepared catalogue with the record beside it; without one there is nothing to compare.

    Raises:
        DataMismatchError: size or checksum differ, or the record cannot be read.
    """
    place = path.with_name(RECORD_NAME)
    if path.name != CATALOGUE_NAME or not place.is_file():
        return
    remedy = f"Run `agentr1-envs prepare webshop` again, or remove {place} to read the catalogue as your own."
    try:
        noted: Any = json.loads(place.read_bytes())["catalogue"]
        size, sha256 = noted["size"], noted["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataMismatchError(f"{place} is no record of a prepared catalogue ({error!r}). {remedy}") from error
    if path.stat().st_size != size:
        raise DataMismatchError(f"{path} has {path.stat().st_size:,} bytes, its record says {size:,}. {remedy}")
    if (found := sha256_of(path)) != sha256:
        raise DataMismatchError(f"{path} has sha256 {found}, its record says {sha256}. {remedy}")
