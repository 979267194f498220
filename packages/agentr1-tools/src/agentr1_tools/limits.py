"""Two limits of a tool box: how often a tool may be called, and how much of a result the model reads."""

import threading
import time

_MARK = "\n[... {cut} characters cut ...]\n"


class RateLimit:
    """At least `interval` seconds between the starts of two calls."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self._next = 0.0
        self._lock = threading.Lock()

    def reserve(self, *, wait: bool) -> float | None:
        """Take the next start. Returns the seconds to wait for it; without `wait`, None when that is not now."""
        if self.interval <= 0:
            return 0.0
        with self._lock:
            now = time.monotonic()
            delay = max(0.0, self._next - now)
            if delay > 0 and not wait:
                return None
            self._next = now + delay + self.interval
            return delay


def truncate(text: str, limit: int) -> str:
    """At most `limit` characters: the head and the tail, with a mark that says how many were cut between them."""
    if len(text) <= limit:
        return text
    mark = _MARK.format(cut=len(text))  # as long as the final one or a digit longer
    room = max(0, limit - len(mark))
    head = (room + 1) // 2
    tail = room - head
    mark = _MARK.format(cut=len(text) - head - tail)
    return (text[:head] + mark + text[len(text) - tail :])[:limit]
