"""`wiki_search`: find passages about a query, in a local corpus (BM25) or behind an HTTP retriever.

The local corpus is the shared, read-only `WikiIndex`. The HTTP side speaks Search-R1's protocol: `POST /retrieve` with
`{"queries", "topk", "return_scores"}`. It never asks the live Wikipedia.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import httpx

from agentr1_tools.base import BaseTool, ToolReturn
from agentr1_tools.errors import ErrorCode, ToolConfigError, ToolError
from agentr1_tools.wiki_index import WikiIndex

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
    """Give one of `corpus` (a jsonl file), `index` (an open WikiIndex) or `url` (a retriever's address).

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
        url: str | None = None,
        index: WikiIndex | None = None,
        max_results: int = 5,
        timeout: float | None = None,
    ) -> None:
        if sum(source is not None for source in (corpus, url, index)) > 1:
            raise ToolConfigError("wiki_search: give one of corpus=, index= and url=, not several")
        if not 1 <= max_results <= 20:
            raise ToolConfigError(f"wiki_search: max_results is {max_results}; legal are 1 to 20")
        self._corpus = corpus
        self._url = url and f"{url.rstrip('/').removesuffix('/retrieve')}/retrieve"
        self._client: httpx.Client | None = None
        self._max_results = max_results
        self.index = index
        self.timeout = timeout if timeout is not None else (0.5 if url else 0.3)
        self.max_batch = 64 if url else 16  # in memory one is searched after another: all well within the limit

    def open(self) -> None:
        """Load the corpus (seconds, the first time in a process) or the HTTP client."""
        if self._url is not None:
            if self._client is None:
                self._client = httpx.Client(timeout=self.timeout)
        elif self.index is None:
            if self._corpus is None:
                raise ToolConfigError(
                    "wiki_search has nothing to search: give corpus= (a jsonl file of passages) or url= (a retriever)"
                )
            self.index = WikiIndex.load(Path(self._corpus))

    def close(self) -> None:
        """Close the HTTP client; the index stays, shared."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def execute(self, params: dict[str, Any]) -> ToolReturn:
        """Search, and return the passages as data and as numbered text."""
        query, limit = self._wanted(params)
        found = self._ask(self._url, [query], limit)[0] if self._url else self._search(query, limit)
        return _as_result(query, found)

    def execute_batch(self, batch: list[dict[str, Any]]) -> list[ToolReturn]:
        """As `execute`: of a retriever in one request; in the local index without a thread for each."""
        wanted = [self._wanted(params) for params in batch]
        if self._url:
            answers = self._ask(self._url, [query for query, _ in wanted], max(limit for _, limit in wanted))
            found = [hits[:limit] for hits, (_, limit) in zip(answers, wanted, strict=True)]
        else:
            found = [self._search(query, limit) for query, limit in wanted]
        return [_as_result(query, hits) for (query, _), hits in zip(wanted, found, strict=True)]

    def _wanted(self, params: dict[str, Any]) -> tuple[str, int]:
        return str(params["query"]), int(params.get("max_results", self._max_results))

    def _search(self, query: str, limit: int) -> list[dict[str, Any]]:
        if self.index is None:
            self.open()
        assert self.index is not None
        return [
            {
                "title": hit.passage.title,
                "text": hit.passage.text,
                "score": round(hit.score, 4),
                "id": hit.passage.id,
            }
            for hit in self.index.search(query, limit)
        ]

    def _ask(self, url: str, queries: list[str], limit: int) -> list[list[dict[str, Any]]]:
        if self._client is None:
            self.open()
        assert self._client is not None
        body = {"queries": queries, "topk": limit, "return_scores": True}
        try:
            response = self._client.post(url, json=body)
            response.raise_for_status()
            return _read_answer(response.json(), len(queries), limit)
        except httpx.TimeoutException:
            raise ToolError(ErrorCode.TIMEOUT, f"the retriever gave no answer within {self.timeout} s") from None
        except httpx.HTTPError as error:
            raise ToolError(ErrorCode.NETWORK_ERROR, f"the retriever cannot be used: {error}") from None
        except (ValueError, TypeError, LookupError) as error:
            raise ToolError(ErrorCode.NETWORK_ERROR, f"the retriever's answer cannot be read: {error}") from None


def _as_result(query: str, found: list[dict[str, Any]]) -> ToolReturn:
    lines = [f"[{rank}] {hit['title']}\n{hit['text']}" for rank, hit in enumerate(found, start=1)]
    return {"status": "success", "data": found, "text": "\n\n".join(lines) or f"No passage found for {query!r}."}


def _read_answer(answer: Any, queries: int, limit: int) -> list[list[dict[str, Any]]]:
    """`{"result": [[hit, ...], ...]}`, a list a query; hits are documents, or `{"document", "score"}` with scores."""
    lists = answer["result"]
    if len(lists) != queries:
        raise ValueError(f"{len(lists)} lists of hits for {queries} queries")
    return [[_read_hit(entry, rank) for rank, entry in enumerate(entries[:limit])] for entries in lists]


def _read_hit(entry: Mapping[str, Any], rank: int) -> dict[str, Any]:
    document = cast(Mapping[str, Any], entry.get("document", entry))
    title, text = _title_and_text(document)
    return {"title": title, "text": text, "score": float(entry.get("score", 0.0)), "id": document.get("id", rank)}


def _title_and_text(document: Mapping[str, Any]) -> tuple[str, str]:
    """A document has `title` and `text`, or `contents`, whose first line is the title in quotes."""
    if "contents" not in document:
        return str(document["title"]), str(document["text"])
    first, _, rest = str(document["contents"]).partition("\n")
    return str(document.get("title", first.strip('"'))), rest or first
