"""The search index of a large catalogue, packed into files: built once, then mapped into memory by every process.

A folder holds the arrays and the vocabulary of one index. It is written beside its place and renamed at the end, so
it is there whole or not at all; one that cannot be read is built again.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from agentr1_envs.webshop.search_index import SearchIndex

FORMAT = 1
"""Goes up when analysis or arrays change, so that an index of before is not read."""

_ARRAYS = ("offsets", "documents", "saturation")


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/agentr1/webshop``, or ``~/.cache/agentr1/webshop``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "agentr1" / "webshop"


def stored_index(name: str, build: Callable[[], SearchIndex], folder: Path | None = None) -> SearchIndex:
    """The index kept under a name, or what `build` gives, which is kept if the folder can be written.

    Args:
        name: says what was indexed; a change of the catalogue must change it.
        build: makes the index.
        folder: where indexes are kept; by default `cache_folder`.
    """
    place = (folder or cache_folder()) / f"{name}-v{FORMAT}"
    with suppress(OSError, ValueError):
        return load_index(place)
    index = build()
    with suppress(OSError):
        save_index(index, place)
    return index


def save_index(index: SearchIndex, place: Path) -> None:
    """Write an index to a folder, instead of what may be there.

    Raises:
        OSError: it cannot be written.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
    try:
        for name in _ARRAYS:
            np.save(unfinished / f"{name}.npy", getattr(index, name))
        (unfinished / "vocabulary.txt").write_text("\n".join(index.vocabulary), encoding="utf-8")
        (unfinished / "count.txt").write_text(str(index.count), encoding="utf-8")
        shutil.rmtree(place, ignore_errors=True)
        os.replace(unfinished, place)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def load_index(place: Path) -> SearchIndex:
    """The index in a folder; its arrays stay in their files until they are used.

    Raises:
        OSError: it is not there. ValueError: it is damaged.
    """
    arrays: dict[str, Any] = {name: np.load(place / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
    vocabulary = tuple((place / "vocabulary.txt").read_text(encoding="utf-8").split("\n"))
    index = SearchIndex(vocabulary, count=int((place / "count.txt").read_text(encoding="utf-8")), **arrays)
    if len(index.offsets) != len(vocabulary) + 1 or int(index.offsets[-1]) != len(index.documents):
        raise ValueError(f"{place} holds parts of different indexes.")
    return index
