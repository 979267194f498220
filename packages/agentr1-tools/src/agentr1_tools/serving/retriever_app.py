"""The HTTP application of a corpus: Search-R1's retrieval protocol.

    GET  /health     {"status": "ok", "running": n}
    POST /retrieve   {"queries": [...], "topk": n, "return_scores": bool} -> {"result": [[hit, ...], ...]}

There is one list a query, best first. With scores a hit is `{"document": {...}, "score": x}`, without it is the
document. The client's side, and what a document holds, is in `retriever`.
"""

from typing import Annotated

from fastapi import FastAPI, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field

from agentr1_tools.errors import ToolConfigError
from agentr1_tools.retriever import PATH, as_document
from agentr1_tools.serving.answers import json_response, refuse_malformed
from agentr1_tools.serving.gate import Gate, ServingLimits
from agentr1_tools.wiki_index import Hit, Searcher

MAX_TOPK = 1000


def retriever_app(index: Searcher, default_topk: int = 3, limits: ServingLimits | None = None) -> Gate:
    """The application of an index, with the gate in front."""
    if not 1 <= default_topk <= MAX_TOPK:
        raise ToolConfigError(f"topk is {default_topk}; legal are 1 to {MAX_TOPK}")
    limits = limits or ServingLimits()

    class QueryBody(BaseModel):
        """What is asked; other keys are ignored, as Search-R1's server ignores them."""

        queries: Annotated[list[str], Field(min_length=1, max_length=limits.max_batch)]
        topk: Annotated[int, Field(ge=1, le=MAX_TOPK)] | None = None
        return_scores: bool = False

    async def health() -> Response:
        return json_response({"status": "ok", "running": gate.running})

    def retrieve(body: QueryBody) -> Response:  # FastAPI runs it on a thread: a search takes the processor
        found = index.search_many(body.queries, body.topk or default_topk)
        return json_response({"result": [[_as_json(hit, body.return_scores) for hit in hits] for hits in found]})

    app = FastAPI(title="agentr1-tools retriever", openapi_url=None)
    app.add_api_route("/health", health, methods=["GET"])
    app.add_api_route(PATH, retrieve, methods=["POST"])
    app.add_exception_handler(RequestValidationError, refuse_malformed)
    gate = Gate(app, limits)
    return gate


def _as_json(hit: Hit, with_score: bool) -> dict[str, object]:
    document = as_document(hit.passage)
    return {"document": document, "score": hit.score} if with_score else document
