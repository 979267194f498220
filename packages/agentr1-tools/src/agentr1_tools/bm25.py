"""Bm25: how well documents fit a query, in memory. It knows words only: no titles, no files."""

import importlib
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The words of a text in lower case, in order."""
    return _WORD.findall(text.lower())


class Bm25:
    """BM25 in Lucene's form (k1 1.5, b 0.75); each word of a query counts once."""

    def __init__(self, documents: Iterable[list[str]]) -> None:
        """Index the documents, each a list of words."""
        vocabulary: dict[str, int] = {}
        rows = [[vocabulary.setdefault(word, len(vocabulary)) for word in document] for document in documents]
        self._vocabulary = vocabulary
        self._size = len(rows)
        # Imported here: it takes a tenth of a second, and its types are not published.
        self._bm25: Any = importlib.import_module("bm25s").BM25(k1=1.5, b=0.75, method="lucene")
        # The empty word at the end keeps documents without any word legal.
        self._bm25.index((rows, {**vocabulary, "": len(vocabulary)}), show_progress=False, create_empty_token=False)

    def scores(self, query: str) -> NDArray[np.float32]:
        """The score of every document; 0 for one that shares no word with the query. Shape: (documents,)."""
        ids = sorted({self._vocabulary[word] for word in words(query) if word in self._vocabulary})
        return self._bm25.get_scores(ids) if ids else np.zeros(self._size, dtype=np.float32)

    def best(self, query: str, k: int) -> list[tuple[int, float]]:
        """(place, score) of the best `k` documents that share a word with the query; ties go by place."""
        if k < 1:
            return []
        scores = self.scores(query)
        k = min(k, self._size)
        threshold = np.partition(scores, -k)[-k]
        found = np.flatnonzero(scores >= threshold) if threshold > 0 else np.flatnonzero(scores > 0)
        chosen = found[np.argsort(-scores[found], kind="stable")][:k]
        return [(int(place), float(scores[place])) for place in chosen]
