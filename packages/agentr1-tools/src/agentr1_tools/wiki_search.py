"""`wiki_search`: find passages about a query, in a local corpus or behind an HTTP retriever.

The local corpus is searched by words (`WikiIndex`, BM25) or by meaning (`DenseIndex`, a sentence-transformers model);
both are shared and read-only. A retriever speaks Search-R1's protocol (`HttpRetriever`). The model sees the same in all
three cases. It never asks the live Wikipedia.
"""

import os
from pathlib import Path
from typing import Any, Literal

from agentr1_tools.base import BaseTool, ToolReturn
from agentr1_tools.errors import ToolConfigError
from agentr1_tools.extras import require
from agentr1_tools.retriever import HttpRetriever
from agentr1_tools.wiki_index import Hit, Searcher, WikiIndex

RetrieverKind = Literal["bm25", "dense"]
LOCAL_SECONDS, DENSE_SECONDS, HTTP_SECONDS = 0.3, 2.0, 0.5
_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "What to look for."},
        "max_results": {
            "type": "integer",
            "minimum": 1,
            "maximum": 20,
            "default": 5,
            "description": "How many passages to return.",
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}


class WikiSearch(BaseTool):
    """Give one of `corpus`, `retriever_url` and `index`.

    corpus: a jsonl file of passages, or a folder with a `corpus.jsonl`; see `wiki_index.read_passages`.
    retriever_url: address of a retriever (`agentr1-tools serve-retriever`, Search-R1's server); no corpus is loaded.
    index: an open index.
    retriever: how the corpus is searched: "bm25", or "dense" with `model`, and the extra `dense` installed.
    model: folder of a sentence-transformers model.
    cache: folder for the corpus's vectors; see `dense_index.cache_folder`.
    timeout: seconds a call may take; by default 0.3, dense 2.0, over HTTP 0.5.

    `data` of a result is a list of `{"title", "text", "score", "id"}`, best first; an empty list is a success.
    """

    name = "wiki_search"
    description = "Search an encyclopedia and return the passages that fit the query best."
    parameters = _PARAMETERS
    cooperative = True

    def __init__(
        self,
        corpus: str | os.PathLike[str] | None = None,
        *,
        retriever_url: str | None = None,
        index: Searcher | None = None,
        retriever: RetrieverKind = "bm25",
        model: str | os.PathLike[str] | None = None,
        cache: str | os.PathLike[str] | None = None,
        max_results: int = 5,
        timeout: float | None = None,
    ) -> None:
        if sum(source is not None for source in (corpus, retriever_url, index)) > 1:
            raise ToolConfigError("wiki_search: give one of corpus=, retriever_url= and index=, not several")
        if not 1 <= max_results <= 20:
            raise ToolConfigError(f"wiki_search: max_results is {max_results}; legal are 1 to 20")
        check_retriever(retriever, model, cache)
        if retriever == "dense" and corpus is None:
            raise ToolConfigError('wiki_search: retriever="dense" searches a local corpus; give corpus= too')
        self._corpus, self._model, self._cache = corpus, model, cache
        self._retriever: RetrieverKind = retriever
        self._max_results = max_results
        default = HTTP_SECONDS if retriever_url else DENSE_SECONDS if retriever == "dense" else LOCAL_SECONDS
        self.timeout = default if timeout is None else timeout
        self._http = HttpRetriever(retriever_url, self.timeout) if retriever_url else None
        self.index = index
        self.max_batch = 64 if retriever_url else 16  # in memory one after another, within the limit

    def open(self) -> None:
        """Load the corpus (seconds, the first time in a process), or get ready to connect."""
        if self._http is not None:
            self._http.open()
        elif self.index is None:
            if self._corpus is None:
                raise ToolConfigError(
                    "wiki_search has nothing to search: give corpus= (a jsonl file of passages) or retriever_url= "
                    "(the address of a retriever)"
                )
            self.index = load_index(self._corpus, self._retriever, self._model, self._cache)

    def close(self) -> None:
        """Close the connections; an index stays, shared."""
        if self._http is not None:
            self._http.close()

    def execute(self, params: dict[str, Any]) -> ToolReturn:
        """Search, and return the passages as data and as numbered text."""
        query, limit = self._wanted(params)
        return _as_result(query, self._searcher().search(query, limit))

    def execute_batch(self, batch: list[dict[str, Any]]) -> list[ToolReturn]:
        """As `execute`; of a retriever all queries are asked in one request, and a model embeds them together."""
        wanted = [self._wanted(params) for params in batch]
        most = max((limit for _, limit in wanted), default=1)
        found = self._searcher().search_many([query for query, _ in wanted], most)
        return [_as_result(query, hits[:limit]) for (query, limit), hits in zip(wanted, found, strict=True)]

    def _wanted(self, params: dict[str, Any]) -> tuple[str, int]:
        return str(params["query"]), int(params.get("max_results", self._max_results))

    def _searcher(self) -> Searcher:
        if self._http is not None:
            self._http.timeout = self.timeout
            return self._http
        if self.index is None:
            self.open()
        assert self.index is not None
        return self.index


def _as_result(query: str, hits: list[Hit]) -> ToolReturn:
    found = [
        {"title": hit.passage.title, "text": hit.passage.text, "score": round(hit.score, 4), "id": hit.passage.id}
        for hit in hits
    ]
    lines = [f"[{rank}] {hit['title']}\n{hit['text']}" for rank, hit in enumerate(found, start=1)]
    return {"status": "success", "data": found, "text": "\n\n".join(lines) or f"No passage found for {query!r}."}


def check_retriever(
    kind: str, model: str | os.PathLike[str] | None, cache: str | os.PathLike[str] | None = None
) -> None:
    """Raise ToolConfigError for a kind there is not and for settings that would have no effect."""
    if kind not in ("bm25", "dense"):
        raise ToolConfigError(f"retriever is {kind!r}; legal are 'bm25' and 'dense'")
    if kind == "dense":
        require("dense", 'retriever="dense"')
        if model is None:
            raise ToolConfigError('retriever="dense" needs model=, the folder of a sentence-transformers model')
    elif model is not None or cache is not None:
        raise ToolConfigError('model= and cache= are for retriever="dense"; leave them out or ask for that')


def load_index(
    corpus: str | os.PathLike[str],
    kind: RetrieverKind = "bm25",
    model: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Searcher:
    """The index of a corpus, shared by all who ask for the same one in this process."""
    if kind == "bm25" or model is None:
        return WikiIndex.load(Path(corpus))
    from agentr1_tools.dense_index import DenseIndex  # torch takes seconds to import

    return DenseIndex.load(Path(corpus), Path(model), None if cache is None else Path(cache))
