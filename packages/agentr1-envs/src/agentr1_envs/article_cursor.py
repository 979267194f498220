"""The place in an article that `lookup` has reached, in an episode. It searches for no article."""

from collections.abc import Mapping, Sequence
from typing import Any


class ArticleCursor:
    """One sentence at a time, of those that hold a keyword; another keyword or another article begins anew."""

    def __init__(self) -> None:
        self.turn_to(())

    def turn_to(self, sentences: Sequence[str]) -> None:
        """Open an article; without sentences none is open."""
        self._sentences = tuple(sentences)
        self._keyword, self._next = "", 0
        self._hits: list[str] = []

    def look_up(self, keyword: str) -> str:
        """The next sentence with this keyword, as ``(Result i / n) ...``, or ``No more results.``"""
        if keyword != self._keyword:
            self._keyword, self._next = keyword, 0
            self._hits = [s.strip() for s in self._sentences if keyword.lower() in s.lower()]
        if self._next >= len(self._hits):
            return "No more results."
        self._next += 1
        return f"(Result {self._next} / {len(self._hits)}) {self._hits[self._next - 1]}"

    def get_state(self) -> dict[str, Any]:
        """The place as JSON-ready data."""
        return {"sentences": self._sentences, "keyword": self._keyword, "next": self._next, "hits": self._hits}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `get_state` gave."""
        self._sentences, self._hits = tuple(state["sentences"]), list(state["hits"])
        self._keyword, self._next = state["keyword"], state["next"]
