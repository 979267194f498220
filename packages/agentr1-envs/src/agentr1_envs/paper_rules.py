"""The numbers of PaperSearch, and what one of its steps pays. Pure: it searches nothing and knows no label."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from agentr1_envs.errors import SettingError


@dataclass(frozen=True, slots=True)
class PaperRules:
    """How much is found, shown, paid and returned; the reward's numbers are PaperScout's."""

    results: int = 10
    """Papers a search finds."""
    references: int = 30
    """References an expansion finds, at most."""
    shown_expanded: int = 10
    """Best expanded papers in the state."""
    shown_new: int = 10
    """Best papers in the state that are not expanded."""
    abstract_words: int = 400
    """Words of an abstract that are shown."""
    drop_below: float = 0.01
    """Papers the scorer gives less than this are dropped."""
    result_from: float = 0.5
    """Papers of the pool with at least this score are the result."""
    patience: int = 3
    """Steps in a row without a new paper that end the episode."""
    best_new: int = 3
    """New papers of a step that can earn."""
    good_from: float = 0.4
    """Score from which one of them earns 1."""
    search_cost: float = 0.1
    """Taken for a search."""
    expand_cost: float = 0.05
    """Taken for an expansion."""
    fault_cost: float = 0.5
    """Taken, instead, for a repeated query, and for an id that is unknown or already expanded."""

    def __post_init__(self) -> None:
        """Raises SettingError for a value out of range."""
        for name in ("results", "references", "shown_expanded", "shown_new", "abstract_words", "patience", "best_new"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise SettingError(f"{name}={value!r} must be a whole number of at least 1.")
        for name in ("results", "references"):
            if getattr(self, name) > 100:
                raise SettingError(f"{name}={getattr(self, name)!r} must be at most 100.")
        for name in ("drop_below", "result_from", "good_from"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise SettingError(f"{name}={getattr(self, name)!r} must lie in 0..1, as scores do.")
        for name in ("search_cost", "expand_cost", "fault_cost"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise SettingError(f"{name}={getattr(self, name)!r} must be 0 or more.")


RULE_NAMES = tuple(field.name for field in fields(PaperRules))


def split_rules(given: dict[str, Any]) -> tuple[PaperRules, dict[str, Any]]:
    """The rules out of keyword arguments, and the arguments that are none."""
    rules = PaperRules(**{name: value for name, value in given.items() if name in RULE_NAMES})
    return rules, {name: value for name, value in given.items() if name not in RULE_NAMES}


def process_reward(
    rules: PaperRules, new_scores: Sequence[float], searches: int, expansions: int, faults: int
) -> float:
    """What a step pays: 1 for each of the best new papers that scores enough, less the cost of its calls.

    Args:
        rules: the numbers.
        new_scores: scores, by the reward's scorer, of the papers this step brought into the pool.
        searches: searches that were no fault.
        expansions: expansions that were no fault.
        faults: repeated queries, and ids unknown or already expanded.
    """
    best = sorted(new_scores, reverse=True)[: rules.best_new]
    good = sum(score >= rules.good_from for score in best)
    return good - rules.search_cost * searches - rules.expand_cost * expansions - rules.fault_cost * faults
