"""How well a ranked list finds the wanted items: pure functions. Macro averages are means of these over questions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

RECALL_AT = (20, 50, 100)


@dataclass(frozen=True, slots=True)
class RetrievalScores:
    """Scores of one ranked list, each in [0, 1]."""

    precision: float
    recall: float
    f1: float
    recall_at: tuple[float, ...]
    """Recall of the first 20, 50 and 100 items."""


def score_ranking(ranked: Sequence[str], gold: Iterable[str]) -> RetrievalScores:
    """Compare a ranking with the wanted items.

    An item that stands in the ranking twice counts once, at its first place. Nothing found or nothing wanted scores 0.
    """
    wanted = frozenset(gold)
    items = tuple(dict.fromkeys(ranked))
    found = [item in wanted for item in items]
    hits = sum(found)
    precision = hits / len(items) if items else 0.0
    recall = hits / len(wanted) if wanted else 0.0
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    recall_at = tuple(sum(found[:k]) / len(wanted) if wanted else 0.0 for k in RECALL_AT)
    return RetrievalScores(precision, recall, f1, recall_at)
