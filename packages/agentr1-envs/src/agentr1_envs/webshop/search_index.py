"""Ranked search: BM25 over an inverted index in numpy, with the rankings and scores that Lucene gives.

Lucene's choices that are kept: a document's length is stored in one byte, scores are 32-bit floats, equal scores come
in document order, and a word that a query repeats counts as often as it stands there.
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from agentr1_envs.webshop.analysis import terms

K1 = 0.9
B = 0.4
EXACT_LENGTHS = 24
"""Lengths below this are stored as they are; longer ones keep their four leading bits."""

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class SearchIndex:
    """Postings by term: for each, the documents that hold it, in order, and how often.

    Shapes: V terms, P postings, N documents.
    """

    vocabulary: tuple[str, ...]
    """(V,), sorted."""
    offsets: npt.NDArray[np.int64]
    """(V + 1,): where the postings of a term begin."""
    documents: Integers
    """(P,)."""
    saturation: Floats
    """(P,): 1 + frequency / (k1 (1 - b + b length / mean length))."""
    count: int
    """N."""

    @cached_property
    def _term_ids(self) -> dict[str, int]:
        return {term: number for number, term in enumerate(self.vocabulary)}

    def search(self, query: str, hits: int) -> tuple[list[int], list[float]]:
        """The best documents for a query, at most `hits`, and their scores; documents without its words are no hits."""
        scores = np.zeros(self.count, np.float64)
        for term, repeats in Counter(terms(query)).items():
            number = self._term_ids.get(term)
            if number is None:
                continue
            start, end = int(self.offsets[number]), int(self.offsets[number + 1])
            weight = np.float32(repeats) * self._idf(end - start)
            scores[self.documents[start:end]] += weight - weight / self.saturation[start:end]
        ranked = scores.astype(np.float32)
        found = np.flatnonzero(ranked)
        if len(found) > hits:
            worst = np.partition(ranked[found], len(found) - hits)[len(found) - hits]
            found = found[ranked[found] >= worst]
        best = found[np.argsort(-ranked[found], kind="stable")][:hits]
        return best.tolist(), ranked[best].tolist()

    def _idf(self, documents: int) -> np.float32:
        """ln(1 + (N - n + 0.5) / (n + 0.5)), Lucene's form, which is never negative."""
        return np.float32(np.log(1 + (self.count - documents + 0.5) / (documents + 0.5)))


def build_index(texts: Iterable[str]) -> SearchIndex:
    """Index documents in their order."""
    ids: dict[str, int] = {}
    term_ids, documents, frequencies, lengths = array("i"), array("i"), array("i"), array("i")
    for number, text in enumerate(texts):
        words = terms(text)
        lengths.append(len(words))
        for term, frequency in Counter(words).items():
            term_ids.append(ids.setdefault(term, len(ids)))
            documents.append(number)
            frequencies.append(frequency)
    vocabulary = tuple(sorted(ids))
    place = np.empty(len(ids), np.int32)
    place[[ids[term] for term in vocabulary]] = np.arange(len(ids), dtype=np.int32)
    sorted_ids = place[np.frombuffer(term_ids, np.int32)] if len(term_ids) else np.empty(0, np.int32)
    order = np.argsort(sorted_ids, kind="stable")
    offsets = np.searchsorted(sorted_ids[order], np.arange(len(ids) + 1))
    by_term = _array(documents)[order]
    saturation = _saturation(_array(frequencies)[order], by_term, _array(lengths))
    return SearchIndex(vocabulary, offsets.astype(np.int64), by_term, saturation, len(lengths))


def _array(numbers: "array[int]") -> Integers:
    return np.array(numbers, np.int32)


def _saturation(frequencies: Integers, documents: Integers, lengths: Integers) -> Floats:
    if not len(lengths):
        return np.empty(0, np.float32)
    mean = np.float32(max(int(lengths.sum(dtype=np.int64)), 1) / len(lengths))
    stored = np.array([stored_length(int(length)) for length in lengths], np.float32)
    k1, b, one = np.float32(K1), np.float32(B), np.float32(1)
    inverse = one / (k1 * ((one - b) + b * stored / mean))
    return (one + frequencies.astype(np.float32) * inverse[documents]).astype(np.float32)


def stored_length(length: int) -> int:
    """A document's length after Lucene has kept it in one byte."""
    rest = length - EXACT_LENGTHS
    if rest < 16:
        return length
    shift = rest.bit_length() - 4
    return EXACT_LENGTHS + (rest >> shift << shift)
