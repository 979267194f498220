"""DenseIndex: a corpus of passages as vectors, searched exactly by inner product.

Embedding a corpus takes minutes, so the matrix is kept on disk under a hash of the corpus and of the model: a change of
either gives another file, and a file is never out of date. Opened once a process for each corpus and model, mapped
into memory read-only, shared by every caller. There is no approximate search here.
"""

import hashlib
import json
import logging
import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agentr1_tools.embedder import SentenceEmbedder
from agentr1_tools.errors import ToolConfigError
from agentr1_tools.wiki_index import Hit, Passage, read_passages

CACHE_VARIABLE = "AGENTR1_CACHE"
_FORMAT = 1
_CHUNK = 1024
_log = logging.getLogger(__name__)
_opened: dict[tuple[Path, Path], "DenseIndex"] = {}
_opening = threading.Lock()


class DenseIndex:
    """Passages and their vectors, one row a passage. Shape of `vectors`: (passages, dimension)."""

    def __init__(
        self, passages: Sequence[Passage], embedder: SentenceEmbedder, vectors: NDArray[np.float32] | None = None
    ) -> None:
        self.passages = tuple(passages)
        if not self.passages:
            raise ToolConfigError("the corpus holds no passage; give at least one with a title and a text")
        self._embedder = embedder
        self.vectors = embedder.embed([as_text(passage) for passage in self.passages]) if vectors is None else vectors

    @staticmethod
    def load(corpus: Path, model: Path, cache: Path | None = None) -> "DenseIndex":
        """The index of a corpus under a model, made at the first call and shared afterwards.

        Args:
            corpus: see `wiki_index.read_passages`, also for the errors.
            model: see `SentenceEmbedder`, also for the errors.
            cache: folder of the matrix; by default `cache_folder()`.
        """
        key = corpus.expanduser().resolve(), model.expanduser().resolve()
        with _opening:
            if key not in _opened:
                passages = read_passages(key[0])
                embedder = SentenceEmbedder(key[1])
                vectors = _kept_vectors(passages, embedder, cache or cache_folder())
                _opened[key] = DenseIndex(passages, embedder, vectors)
            return _opened[key]

    def search(self, query: str, k: int = 5) -> list[Hit]:
        """The `k` passages whose vectors have the largest inner product with the query's, ties by corpus order."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int = 5) -> list[list[Hit]]:
        """As `search`, one list for each query, all embedded together."""
        scores = self._embedder.embed(queries, "query") @ self.vectors.T
        return [
            self._best(row, min(k, len(self.passages))) if query.strip() and k > 0 else []
            for query, row in zip(queries, scores, strict=True)
        ]

    def _best(self, scores: NDArray[np.float32], k: int) -> list[Hit]:
        found = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
        best = found[np.argsort(-scores[found], kind="stable")][:k]
        return [Hit(self.passages[int(index)], float(scores[index])) for index in best]


def as_text(passage: Passage) -> str:
    """What is embedded of a passage."""
    return f"{passage.title}\n{passage.text}"


def cache_folder() -> Path:
    """Where vectors are kept: `$AGENTR1_CACHE`, else `$XDG_CACHE_HOME/agentr1`, else `~/.cache/agentr1`."""
    if configured := os.environ.get(CACHE_VARIABLE):
        return Path(configured).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "agentr1"


def cache_key(passages: Sequence[Passage], model: str) -> str:
    """A hash of everything the matrix depends on: the texts in their order, the model's fingerprint, this format."""
    digest = hashlib.sha256(json.dumps([_FORMAT, model]).encode())
    for passage in passages:
        digest.update(json.dumps(as_text(passage)).encode() + b"\n")
    return digest.hexdigest()


def _kept_vectors(passages: Sequence[Passage], embedder: SentenceEmbedder, folder: Path) -> NDArray[np.float32]:
    """The matrix from disk; embedded and written there when it is not there or does not fit."""
    path = folder.expanduser() / f"dense-{cache_key(passages, embedder.fingerprint())[:32]}.npy"
    shape = (len(passages), embedder.dimension)
    try:
        kept: NDArray[np.float32] = np.load(path, mmap_mode="r")
        if kept.shape == shape and kept.dtype == np.float32:
            return kept
        _log.warning("%s holds %s %s, not float32 %s; it is made anew", path, kept.dtype, kept.shape, shape)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, EOFError) as error:
        _log.warning("%s cannot be read (%s); it is made anew", path, error)
    vectors = _embed(passages, embedder, path)
    try:
        _write(path, vectors)
    except OSError as error:
        _log.warning("the vectors cannot be kept (%s); the next process embeds the corpus again", error)
    return vectors


def _embed(passages: Sequence[Passage], embedder: SentenceEmbedder, path: Path) -> NDArray[np.float32]:
    vectors = np.empty((len(passages), embedder.dimension), dtype=np.float32)
    if len(passages) > _CHUNK:  # this takes minutes; say so, and how far it is
        _log.warning("embedding %d passages with %s, once; kept as %s", len(passages), embedder.folder, path)
    for start in range(0, len(passages), _CHUNK):
        part = passages[start : start + _CHUNK]
        vectors[start : start + len(part)] = embedder.embed([as_text(passage) for passage in part])
        if len(passages) > _CHUNK:
            _log.warning("embedded %d of %d passages", start + len(part), len(passages))
    return vectors


def _write(path: Path, vectors: NDArray[np.float32]) -> None:
    """Write whole or not at all: another process may read the same name, or write it at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}-", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.save(file, vectors)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
