"""What is read off a response that calls no tool: its answer, and what it says outside its thinking."""

import re

_OPEN = re.compile("<answer>", re.IGNORECASE)
_CLOSE = re.compile("</answer>", re.IGNORECASE)


def answer_in_tag(text: str) -> str | None:
    """The content of the last ``<answer>`` tag, stripped; None without one.

    A tag the response ends inside of counts up to the end, since a stop string may have cut the closing tag.
    """
    starts = [tag.end() for tag in _OPEN.finditer(text)]
    if not starts:
        return None
    end = _CLOSE.search(text, starts[-1])
    return text[starts[-1] : end.start() if end else len(text)].strip()


def without_thinking(text: str) -> str:
    """What stands behind the last ``</think>``, or before a ``<think>`` that never ends."""
    spoken = text.rpartition("</think>")[2]
    return spoken.partition("<think>")[0].strip()
