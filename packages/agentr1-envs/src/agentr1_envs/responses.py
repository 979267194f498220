"""What is read off a response that calls no tool: its answer, and what it says outside its thinking."""

import re

_OPEN = re.compile("<answer>", re.IGNORECASE)
_CLOSE = re.compile("</answer>", re.IGNORECASE)
_FACTS = re.compile("<facts>(.*?)(?:</facts>|<answer>|$)", re.IGNORECASE | re.DOTALL)
_FACT = re.compile(r"(?P<title>.+?)\s*\[(?P<places>[\d,\s]+)\]")


def answer_in_tag(text: str) -> str | None:
    """The content of the last ``<answer>`` tag, stripped; None without one.

    A tag the response ends inside of counts up to the end, since a stop string may have cut the closing tag.
    """
    starts = [tag.end() for tag in _OPEN.finditer(text)]
    if not starts:
        return None
    end = _CLOSE.search(text, starts[-1])
    return text[starts[-1] : end.start() if end else len(text)].strip()


def facts_in_tag(text: str) -> tuple[tuple[str, int], ...]:
    """The (title, sentence index) pairs in the last ``<facts>`` tag: a title a line, its sentences in brackets.

    A line that cannot be read is left out.
    """
    tags = _FACTS.findall(text)
    pairs: list[tuple[str, int]] = []
    for line in tags[-1].splitlines() if tags else ():
        if found := _FACT.fullmatch(line.strip()):
            pairs += [(found["title"], int(place)) for place in found["places"].replace(",", " ").split()]
    return tuple(dict.fromkeys(pairs))


def without_thinking(text: str) -> str:
    """What stands behind the last ``</think>``, or before a ``<think>`` that never ends."""
    spoken = text.rpartition("</think>")[2]
    return spoken.partition("<think>")[0].strip()
