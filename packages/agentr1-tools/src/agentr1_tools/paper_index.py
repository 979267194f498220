"""PaperIndex: papers with abstracts and references in memory, searched by BM25 or by the vectors of an encoder.

Opened once a process for each file, read-only, shared by every caller. It knows no question and no label.
"""

import importlib
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from agentr1_tools.bm25 import Bm25, words
from agentr1_tools.errors import ToolConfigError
from agentr1_tools.paper_file import Paper, letters, read_papers

Keep = Callable[[Paper], bool]
"""Says whether a paper may be shown."""
Encoder = Callable[[list[str]], Any]
"""Texts to vectors, one row a text; a search then goes by the cosine."""

_opened: dict[tuple[Path, object], "PaperIndex"] = {}
_opening = threading.Lock()


@dataclass(frozen=True)
class PaperHit:
    """A paper that was found, with its BM25 score or cosine."""

    paper: Paper
    score: float


class PaperIndex:
    """Papers by title and abstract, each word as often as it stands there; ties go by corpus order."""

    def __init__(self, papers: Iterable[Paper], encoder: Encoder | None = None) -> None:
        """Index the papers; with an `encoder`, by its vectors.

        Raises:
            ToolConfigError: no paper, an id twice, or an encoder that returns something else than a row a text.
        """
        self.papers = tuple(papers)
        if not self.papers:
            raise ToolConfigError("the corpus holds no paper; give at least one with an id, a title and an abstract")
        self._places = {paper.id: place for place, paper in enumerate(self.papers)}
        if len(self._places) < len(self.papers):
            raise ToolConfigError("two papers of the corpus have the same id; give each its own")
        self._bm25 = Bm25(words(paper.text) for paper in self.papers)
        self._encoder = encoder
        self._vectors = None if encoder is None else unit_vectors(encoder, [paper.text for paper in self.papers])

    @staticmethod
    def load(path: str | Path, encoder: Encoder | None = None) -> "PaperIndex":
        """The index of a jsonl file (see `paper_file`), built at the first call and shared afterwards.

        Raises:
            FileNotFoundError: no such file. ToolConfigError: a row that cannot be read, named by line and field.
        """
        resolved = Path(path).expanduser().resolve()
        with _opening:
            key = (resolved, encoder)
            if key not in _opened:
                _opened[key] = PaperIndex(read_papers(resolved), encoder)
            return _opened[key]

    def find(self, paper_id: str) -> Paper | None:
        """The paper with this id, or None."""
        place = self._places.get(paper_id)
        return None if place is None else self.papers[place]

    def by_title(self, title: str) -> Paper | None:
        """The first paper whose title has the same letters, whatever their case and what stands between them."""
        return self._by_title.get(letters(title))

    def search(self, query: str, k: int = 10, keep: Keep | None = None) -> list[PaperHit]:
        """The best `k` papers that may be shown and score above 0, best first."""
        scores = self.scores(query)
        found = np.flatnonzero(scores > 0)
        hits: list[PaperHit] = []
        for place in found[np.argsort(-scores[found], kind="stable")]:
            if len(hits) >= k:
                break
            paper = self.papers[int(place)]
            if keep is None or keep(paper):
                hits.append(PaperHit(paper, float(scores[place])))
        return hits

    def references(self, paper: Paper, k: int = 30, keep: Keep | None = None) -> list[Paper]:
        """The first `k` papers of the corpus that this one cites and that may be shown, in its own order."""
        cited = (self.find(paper_id) for paper_id in paper.references)
        return [other for other in cited if other is not None and (keep is None or keep(other))][:k]

    def rate(self, query: str, papers: Sequence[Paper]) -> list[float]:
        """The score that a search for `query` gives each of these papers; 0 for one outside the corpus."""
        scores = self.scores(query)
        places = (self._places.get(paper.id) for paper in papers)
        return [0.0 if place is None else max(float(scores[place]), 0.0) for place in places]

    def scores(self, query: str) -> NDArray[np.float32]:
        """The score of every paper for a query. Shape: (papers,)."""
        if self._encoder is None or self._vectors is None:
            return self._bm25.scores(query)
        return (self._vectors @ unit_vectors(self._encoder, [query])[0]).astype(np.float32)

    @cached_property
    def _by_title(self) -> dict[str, Paper]:
        return {letters(paper.title): paper for paper in reversed(self.papers)}


def unit_vectors(encoder: Encoder, texts: list[str]) -> NDArray[np.float32]:
    """The vectors of these texts, each of length 1 (a zero vector stays). Shape: (texts, D).

    Raises:
        ToolConfigError: the encoder does not return one row of finite numbers a text.
    """
    vectors = np.asarray(encoder(texts), dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise ToolConfigError(
            f"the encoder returned an array of shape {vectors.shape} for {len(texts)} texts; it must return one row of "
            "finite numbers a text"
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def find_encoder(given: str | Encoder | None) -> Encoder | None:
    """A function as it is, ``"module:function"`` imported, None passed through.

    Raises:
        ToolConfigError: the name has another form, or there is no such function.
    """
    if not isinstance(given, str):
        return given
    if not re.fullmatch(r"[\w.]+:[\w.]+", given):
        raise ToolConfigError(f"encoder={given!r}: write module:function, which turns a list of texts into vectors")
    module, _, name = given.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ToolConfigError(f"encoder={given!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ToolConfigError(f"encoder={given!r} is a {type(found).__name__}, not a function")
    return cast(Encoder, found)
