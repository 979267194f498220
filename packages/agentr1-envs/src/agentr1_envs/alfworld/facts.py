"""What is true: facts in sets, found by predicate, or by predicate and one argument."""

from collections.abc import Iterable, Iterator

from agentr1_envs.alfworld.pddl import Fact

Arguments = tuple[str, ...]

_NONE: frozenset[Arguments] = frozenset()


class Facts:
    """A set of facts over a base of facts that never change and that many states share.

    A predicate stands either here or in the base. An index over one argument is built when it is first asked for and
    kept up from then on. What an action made false stands under ``not_<predicate>`` until it becomes true again, as
    the stock engine has it: the grammar asks for it.
    """

    __slots__ = ("_base", "_indexes", "_rows")

    def __init__(self, facts: Iterable[Fact] = (), base: "Facts | None" = None) -> None:
        self._base = base
        self._rows: dict[str, set[Arguments]] = {}
        self._indexes: dict[tuple[str, int], dict[str, set[Arguments]]] = {}
        for predicate, *arguments in facts:
            self._rows.setdefault(predicate, set()).add(tuple(arguments))

    def rows(self, predicate: str) -> Iterable[Arguments]:
        """The arguments of every fact of a predicate."""
        found = self._rows.get(predicate)
        if found is None:
            return self._base.rows(predicate) if self._base else _NONE
        return found

    def rows_with(self, predicate: str, place: int, value: str) -> Iterable[Arguments]:
        """The arguments of the facts of a predicate that have `value` at `place`."""
        rows = self._rows.get(predicate)
        if rows is None:
            return self._base.rows_with(predicate, place, value) if self._base else _NONE
        index = self._indexes.get((predicate, place))
        if index is None:
            index = dict[str, set[Arguments]]()
            for row in rows:
                if place < len(row):
                    index.setdefault(row[place], set()).add(row)
            self._indexes[predicate, place] = index
        return index.get(value, _NONE)

    def has(self, predicate: str, arguments: Arguments) -> bool:
        """True when the fact holds."""
        rows = self._rows.get(predicate)
        if rows is None:
            return self._base is not None and self._base.has(predicate, arguments)
        return arguments in rows

    def lacks(self, predicate: str, arguments: Arguments) -> bool:
        """True when the fact does not hold."""
        return not self.has(predicate, arguments)

    def count(self, predicate: str) -> int:
        """How many facts a predicate has."""
        rows = self._rows.get(predicate)
        return len(rows) if rows is not None else self._base.count(predicate) if self._base else 0

    def make(self, predicate: str, arguments: Arguments, true: bool) -> None:
        """Make a fact true or false."""
        gained, lost = (predicate, f"not_{predicate}") if true else (f"not_{predicate}", predicate)
        self.add(gained, arguments)
        self.discard(lost, arguments)

    def add(self, predicate: str, arguments: Arguments) -> None:
        """Put one fact in."""
        self._rows.setdefault(predicate, set()).add(arguments)
        for place, value in enumerate(arguments):
            if (index := self._indexes.get((predicate, place))) is not None:
                index.setdefault(value, set()).add(arguments)

    def discard(self, predicate: str, arguments: Arguments) -> None:
        """Take one fact out, if it is there."""
        rows = self._rows.get(predicate)
        if rows is None or arguments not in rows:
            return
        rows.remove(arguments)
        for place, value in enumerate(arguments):
            if (index := self._indexes.get((predicate, place))) is not None:
                index[value].remove(arguments)

    def copy(self) -> "Facts":
        """Facts of their own over the same base."""
        twin = Facts()
        twin._adopt(self)
        return twin

    def _adopt(self, other: "Facts") -> None:
        self._base = other._base
        self._rows = {predicate: set(rows) for predicate, rows in other._rows.items()}

    def replaced(self, facts: Iterable[Fact]) -> "Facts":
        """Other facts over the same base."""
        return Facts(facts, self._base)

    def own(self) -> Iterator[Fact]:
        """The facts that stand here, not in the base; sorted."""
        for predicate in sorted(self._rows):
            for row in sorted(self._rows[predicate]):
                yield (predicate, *row)
