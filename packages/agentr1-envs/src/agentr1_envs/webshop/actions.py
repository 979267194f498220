"""Reading an action: ``search[words]`` or ``click[what the page offers]``, by the benchmark's own rule."""

import re

_ACTION = re.compile(r"(.+)\[(.+)\]")


def parse_action(text: str) -> tuple[str, str | None]:
    """The name and the argument of an action, as they are written; ``(text, None)`` when it has no such form.

    The rule is matched at the start, greedily and within the first line; what stands behind the last bracket of that
    line is ignored. So ``search[a][b]`` has the name "search[a]", which no page knows.
    """
    found = _ACTION.match(text)
    return (text, None) if found is None else (found.group(1), found.group(2))


def without_thoughts(response: str) -> str:
    """What stands behind the last ``</think>``, stripped; a response without one is left exactly as it is."""
    _, closing, spoken = response.rpartition("</think>")
    return spoken.strip() if closing else response
