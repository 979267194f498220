"""The names of things: ``cabinet_bar__plus_01_dot_2...`` becomes "cabinet 3"."""

from collections import Counter
from collections.abc import Iterable

_MARK = "_bar_"


def name_things(ids: Iterable[str]) -> dict[str, str]:
    """Names by id. Things of a kind are numbered from 1, the last id in alphabetical order first.

    An id without a position in it keeps its text, with the trailing blank the stock engine gives it.
    """
    left = Counter[str]()
    kinds: dict[str, str] = {}
    for thing in sorted(set(ids)):
        kind, mark, _ = thing.partition(_MARK)
        if mark:
            kinds[thing] = f"{kind}basin" if "basin" in thing else kind
            left[kinds[thing]] += 1
        else:
            kinds[thing] = ""
    names: dict[str, str] = {}
    for thing, kind in kinds.items():
        names[thing] = f"{kind} {left[kind]}" if kind else f"{thing} "
        left[kind] -= 1
    return names
