"""Counts of one tool: calls, errors by code and how many of them were injected, cache hits and misses, seconds."""

import threading
from collections import Counter, deque
from typing import Any

from agentr1_tools.result import ToolResult

_KEPT_SECONDS = 4096


class Tally:
    """What happened to the calls of one tool. Quantiles are over the newest 4,096 calls that ran."""

    def __init__(self) -> None:
        self._calls = 0
        self._errors: Counter[str] = Counter()
        self._hits = 0
        self._misses = 0
        self._injected = 0
        self._seconds: deque[float] = deque(maxlen=_KEPT_SECONDS)
        self._lock = threading.Lock()

    def looked_up(self, *, hit: bool) -> None:
        """Count one look into the cache."""
        with self._lock:
            self._hits += hit
            self._misses += not hit

    def finished(self, result: ToolResult, seconds: float | None) -> None:
        """Count one call; `seconds` is None for one that never ran."""
        with self._lock:
            self._calls += 1
            if result.error is not None:
                self._errors[result.error] += 1
                self._injected += bool(result.metrics.get("injected"))
            if seconds is not None:
                self._seconds.append(seconds)

    def report(self) -> dict[str, Any]:
        """The counts; the quantiles are 0.0 while nothing has run."""
        with self._lock:
            ordered = sorted(self._seconds)
            return {
                "calls": self._calls,
                "errors": dict(sorted(self._errors.items())),
                "injected": self._injected,
                "cache_hits": self._hits,
                "cache_misses": self._misses,
                "seconds_p50": _quantile(ordered, 0.50),
                "seconds_p95": _quantile(ordered, 0.95),
            }


def _quantile(ordered: list[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    if not ordered:
        return 0.0
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
