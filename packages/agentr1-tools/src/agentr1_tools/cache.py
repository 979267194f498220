"""The result cache of one tool box: LRU, keyed by tool name and canonical JSON of the arguments; errors stay out."""

import copy
import threading
from typing import Any, cast

import cachetools

from agentr1_tools.result import ToolResult


class ResultCache:
    """Keeps up to `size` successes; 0 keeps none. Data is copied in and out, so a caller may change what it got."""

    def __init__(self, size: int) -> None:
        self._results = cast(dict[tuple[str, str], ToolResult], cast(Any, cachetools).LRUCache(maxsize=size))
        self._size = size
        self._lock = threading.Lock()

    def get(self, name: str, arguments: str) -> ToolResult | None:
        """The kept result of an equal call, or None."""
        with self._lock:
            result = self._results.get((name, arguments))
        return _copied(result) if result is not None else None

    def put(self, name: str, arguments: str, result: ToolResult) -> None:
        """Keep a success."""
        if self._size and result.ok:
            kept = _copied(result)
            with self._lock:
                self._results[name, arguments] = kept


def _copied(result: ToolResult) -> ToolResult:
    return ToolResult(
        result.status, copy.deepcopy(result.data), result.error, result.text, dict(result.metrics), result.source
    )
