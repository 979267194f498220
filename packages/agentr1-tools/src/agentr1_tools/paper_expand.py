"""`paper_expand`: the references of a paper, as far as the corpus holds them."""

import os
from collections.abc import Callable
from typing import Any

from agentr1_tools.base import BaseTool, ToolReturn
from agentr1_tools.paper_index import Encoder, Keep, PaperIndex, find_encoder
from agentr1_tools.paper_search import as_text, check_source, open_index, rated

UNKNOWN_PAPER = "UNKNOWN_PAPER"

_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "paper_id": {"type": ["string", "integer"], "description": "Id of the paper, as it stands in brackets."}
    },
    "required": ["paper_id"],
    "additionalProperties": False,
}


class PaperExpand(BaseTool):
    """Give `corpus` (a jsonl file) or `index` (an open PaperIndex).

    `data` of a result is ``{"paper_id", "papers": [...]}`` with the papers as `paper_search` has them, in the paper's
    own order; none is a success. An unknown id fails with `UNKNOWN_PAPER`. `keep` leaves papers out; `query` says what
    the references are scored for (0 without it). A tool with either is not cached, since both may change.
    """

    name = "paper_expand"
    description = "List the papers that a paper cites, given its id."
    parameters = _PARAMETERS
    cooperative = True

    def __init__(
        self,
        corpus: str | os.PathLike[str] | None = None,
        *,
        index: PaperIndex | None = None,
        encoder: str | Encoder | None = None,
        keep: Keep | None = None,
        query: Callable[[], str] | None = None,
        max_results: int = 30,
        timeout: float = 0.3,
    ) -> None:
        check_source(self.name, corpus, index, max_results)
        self._corpus, self._encoder = corpus, find_encoder(encoder)
        self._keep, self._query, self._max_results = keep, query, max_results
        self.index = index
        self.timeout = timeout
        self.cacheable = keep is None and query is None

    def open(self) -> None:
        """Load the corpus: seconds, the first time in a process."""
        if self.index is None:
            self.index = open_index(self.name, self._corpus, self._encoder)

    def execute(self, params: dict[str, Any]) -> ToolReturn:
        """Look the references up, and return them as data and as text."""
        if self.index is None:
            self.open()
        assert self.index is not None
        paper_id = str(params["paper_id"]).strip().strip("[]")
        paper = self.index.find(paper_id)
        if paper is None:
            return {
                "error": UNKNOWN_PAPER,
                "message": f"there is no paper {paper_id!r}; an id stands in brackets before the title.",
                "data": {"paper_id": paper_id},
            }
        cited = self.index.references(paper, self._max_results, self._keep)
        papers = rated(self.index, cited, self._query and self._query())
        text = "\n\n".join(map(as_text, papers)) or f"No reference of [{paper_id}] is in the corpus."
        return {"status": "success", "data": {"paper_id": paper_id, "papers": papers}, "text": text}
