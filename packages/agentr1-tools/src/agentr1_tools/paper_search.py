"""`paper_search`: find papers about a query, by title and abstract, in a corpus of one's own.

The corpus is the shared, read-only `PaperIndex`: BM25, or dense by the vectors of an encoder.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentr1_tools.base import BaseTool, ToolReturn
from agentr1_tools.errors import ToolConfigError
from agentr1_tools.paper_file import Paper
from agentr1_tools.paper_index import Encoder, Keep, PaperIndex, find_encoder

_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "What to look for."}},
    "required": ["query"],
    "additionalProperties": False,
}


class PaperSearch(BaseTool):
    """Give `corpus` (a jsonl file) or `index` (an open PaperIndex); `encoder` makes the retrieval dense.

    `data` of a result is ``{"query", "papers": [{"id", "title", "abstract", "date", "score"}]}``, best first; no paper
    is a success. `keep` leaves papers out before they are counted; a tool with it is not cached, since what it keeps
    may change.
    """

    name = "paper_search"
    description = "Search for papers by title and abstract; returns those that fit the query best."
    parameters = _PARAMETERS
    cooperative = True

    def __init__(
        self,
        corpus: str | os.PathLike[str] | None = None,
        *,
        index: PaperIndex | None = None,
        encoder: str | Encoder | None = None,
        keep: Keep | None = None,
        max_results: int = 10,
        timeout: float = 0.3,
    ) -> None:
        check_source(self.name, corpus, index, max_results)
        self._corpus, self._encoder = corpus, find_encoder(encoder)
        self._keep, self._max_results = keep, max_results
        self.index = index
        self.timeout = timeout
        self.cacheable = keep is None

    def open(self) -> None:
        """Load the corpus: seconds, the first time in a process."""
        if self.index is None:
            self.index = open_index(self.name, self._corpus, self._encoder)

    def execute(self, params: dict[str, Any]) -> ToolReturn:
        """Search, and return the papers as data and as text."""
        if self.index is None:
            self.open()
        assert self.index is not None
        query = str(params["query"])
        hits = self.index.search(query, self._max_results, self._keep)
        papers = [shown(hit.paper, hit.score) for hit in hits]
        text = "\n\n".join(map(as_text, papers)) or f"No paper found for {query!r}."
        return {"status": "success", "data": {"query": query, "papers": papers}, "text": text}


def shown(paper: Paper, score: float) -> dict[str, Any]:
    """A paper as the data of a result."""
    return {
        "id": paper.id,
        "title": paper.title,
        "abstract": paper.abstract,
        "date": paper.date,
        "score": round(score, 4),
    }


def as_text(paper: dict[str, Any]) -> str:
    """A paper of a result as text: id and title, then the abstract."""
    return f"[{paper['id']}] {paper['title']}\n{paper['abstract']}".strip()


def check_source(tool: str, corpus: object, index: object, max_results: int) -> None:
    """Raise ToolConfigError for two sources, or a number of results out of range."""
    if corpus is not None and index is not None:
        raise ToolConfigError(f"{tool}: give one of corpus= and index=, not both")
    if not 1 <= max_results <= 100:
        raise ToolConfigError(f"{tool}: max_results is {max_results}; legal are 1 to 100")


def open_index(tool: str, corpus: str | os.PathLike[str] | None, encoder: Encoder | None) -> PaperIndex:
    """The shared index of a corpus. Raises ToolConfigError when there is none."""
    if corpus is None:
        raise ToolConfigError(f"{tool} has nothing to search: give corpus=, a jsonl file of papers")
    return PaperIndex.load(Path(corpus), encoder)


def rated(index: PaperIndex, papers: Sequence[Paper], query: str | None) -> list[dict[str, Any]]:
    """Papers as data, scored for a query; 0 without one."""
    scores = [0.0] * len(papers) if query is None else index.rate(query, papers)
    return [shown(paper, score) for paper, score in zip(papers, scores, strict=True)]
