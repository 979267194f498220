"""HttpRetriever: searches passages behind an HTTP retriever that speaks Search-R1's protocol.

`POST /retrieve {"queries": [...], "topk": n, "return_scores": bool}` answers `{"result": [[hit, ...], ...]}`, one list
for each query. A hit is `{"document": {...}, "score": x}`, or the document alone where no scores were asked for. A
document holds `contents`, whose first line is the title in quotes; it may hold `id`, `title` and `text` as well. The
server's side of the same protocol is `serving.retriever_app`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentr1_tools.errors import ErrorCode, ToolError
from agentr1_tools.http_client import HttpClient
from agentr1_tools.wiki_index import Hit, Passage, title_and_text

PATH = "/retrieve"


class HttpRetriever:
    """A retriever at an address, with or without `/retrieve` at its end."""

    def __init__(self, url: str, timeout: float) -> None:
        self._http = HttpClient(url.rstrip("/").removesuffix(PATH), "the retriever")
        self.timeout = timeout

    def open(self) -> None:
        """Get ready to connect."""
        self._http.open()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def search(self, query: str, k: int = 5) -> list[Hit]:
        """What the retriever finds, at most `k`. Raises ToolError (TIMEOUT, NETWORK_ERROR)."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int = 5) -> list[list[Hit]]:
        """As `search`, one list for each query, all asked in one request."""
        body = {"queries": list(queries), "topk": k, "return_scores": True}
        status, answer = self._http.post(PATH, body, self.timeout)
        if status != 200:
            raise ToolError(ErrorCode.NETWORK_ERROR, f"the retriever answered {status}: {str(answer)[:200]}")
        try:
            return [
                [_hit(entry, rank) for rank, entry in enumerate(hits[:k])]
                for _, hits in zip(queries, answer["result"], strict=True)
            ]
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            problem = f"the retriever's answer cannot be read: {type(error).__name__}: {error}"
            raise ToolError(ErrorCode.NETWORK_ERROR, problem) from None


def as_document(passage: Passage) -> dict[str, Any]:
    """A passage as a document of the protocol; `title` and `text` spare the reader from taking `contents` apart."""
    contents = f'"{passage.title}"\n{passage.text}'
    return {"id": passage.id, "title": passage.title, "text": passage.text, "contents": contents}


def _hit(entry: Any, rank: int) -> Hit:
    document = cast(Mapping[str, Any], entry.get("document", entry))
    if "contents" in document:
        title, text = title_and_text(str(document["contents"]))
        title, text = str(document.get("title", title)), str(document.get("text", text))
    else:
        title, text = str(document["title"]), str(document["text"])
    return Hit(Passage(document.get("id", rank), title, (text,)), float(entry.get("score", 0.0)))
