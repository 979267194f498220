"""Relevance of papers for a question, in 0..1: what PaperSearch shows, drops and returns by. No scorer sees a label."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, cast

from agentr1_envs.errors import SettingError, did_you_mean
from agentr1_envs.paper_pool import FoundPaper
from agentr1_envs.tool_env import Encoder, unit_vectors

PaperScorer = Callable[[str, Sequence[FoundPaper]], Sequence[float]]
"""``(question, papers) -> scores``, asked once for each list of papers a tool returned."""

SCORERS = ("retrieval", "embedding")


def by_retrieval(question: str, papers: Sequence[FoundPaper]) -> list[float]:
    """The score the papers came with (BM25, or a cosine), as a share of the best of their list."""
    best = max((paper.score for paper in papers), default=0.0)
    return [max(paper.score, 0.0) / best if best > 0 else 0.0 for paper in papers]


def by_embedding(encoder: Encoder) -> PaperScorer:
    """The cosine of question and paper by this encoder; below 0 counts as 0."""

    def score(question: str, papers: Sequence[FoundPaper]) -> list[float]:
        vectors = unit_vectors(encoder, [question, *(f"{paper.title}\n{paper.abstract}" for paper in papers)])
        return [min(max(float(value), 0.0), 1.0) for value in vectors[1:] @ vectors[0]]

    return score


def find_scorer(given: str | PaperScorer, encoder: Encoder | None) -> PaperScorer:
    """A scorer by name ("retrieval", "embedding"), as ``module:function``, or as it is.

    Raises:
        SettingError: an unknown name, a function that cannot be imported, or "embedding" without an encoder.
    """
    if not isinstance(given, str):
        return given
    if given == "retrieval":
        return by_retrieval
    if given == "embedding":
        if encoder is None:
            raise SettingError("scorer='embedding' needs encoder=, a function from a list of texts to vectors.")
        return by_embedding(encoder)
    module, colon, name = given.partition(":")
    if not colon:
        raise SettingError(
            f"scorer={given!r} is not known; legal: {', '.join(map(repr, SCORERS))}, 'module:function', or a function "
            f"(question, papers) -> scores.{did_you_mean(given, SCORERS)}"
        )
    try:
        return cast(PaperScorer, getattr(import_module(module), name))
    except (ImportError, AttributeError) as error:
        raise SettingError(f"scorer={given!r} cannot be imported: {error}.") from error


def scores_of(scorer: PaperScorer, question: str, papers: Sequence[FoundPaper]) -> list[float]:
    """What a scorer says of these papers.

    Raises:
        SettingError: it returned another number of scores, or one outside 0..1.
    """
    if not papers:
        return []
    scores: list[Any] = list(scorer(question, papers))
    if len(scores) != len(papers) or not all(0.0 <= float(score) <= 1.0 for score in scores):
        raise SettingError(
            f"The scorer returned {scores!r:.120} for {len(papers)} papers; it must return one score in 0..1 for each."
        )
    return [float(score) for score in scores]
