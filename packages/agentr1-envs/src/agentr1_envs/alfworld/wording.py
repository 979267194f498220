"""Turns rules into text: what the game says about a state. Pure functions of a grammar, a goal and the facts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentr1_envs.alfworld.facts import Facts
from agentr1_envs.alfworld.grammar import GOAL, Condition, Entity, Grammar, Rule, Spot, Symbol
from agentr1_envs.errors import GameFileError

Variable = tuple[str, str]
"""Name and type."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What the names in a text stand for: variables, and the entities behind them by name alone."""

    bound: Mapping[Variable, str]
    entities: Mapping[str, Entity]


@dataclass(frozen=True, slots=True)
class Wording:
    """All that a text depends on, the state aside."""

    grammar: Grammar
    entities: Mapping[str, Entity]
    """Every thing of the game by id."""
    kinds: Mapping[str, frozenset[str]]
    """Type to the ids of its things."""

    def scope(self, bound: Mapping[Variable, str]) -> Scope:
        """A scope for variables bound to ids."""
        return Scope(
            bound, {name: self.entities[value] for (name, _), value in bound.items() if value in self.entities}
        )

    def text(self, symbols: tuple[Symbol, ...], scope: Scope, facts: Facts, goal: str = "") -> str:
        """The text of the symbols.

        Raises:
            GameFileError: a rule is not there, or none of its forms applies.
        """
        return "".join(self._say(symbols, scope, facts, goal))

    def solutions(self, condition: Condition, scope: Scope, facts: Facts) -> Iterator[Scope]:
        """Each way to make the condition true, in the order of the sorted facts.

        Two variables never stand for the same thing.
        """
        for bound in self._matches(condition, 0, dict(scope.bound), set(scope.bound.values()), facts):
            yield self.scope(bound)

    def _say(self, symbols: tuple[Symbol, ...], scope: Scope, facts: Facts, goal: str) -> Iterator[str]:
        for symbol in symbols:
            if isinstance(symbol, str):
                yield symbol.replace(GOAL, goal) if goal else symbol
            elif isinstance(symbol, Rule):
                yield from self._say(self._produce(symbol.name, scope, facts), scope, facts, goal)
            else:
                yield from self._fill(symbol, scope, facts, goal)

    def _fill(self, spot: Spot, scope: Scope, facts: Facts, goal: str) -> Iterator[str]:
        scopes = list(self.solutions(spot.given, scope, facts)) if spot.given else [scope]
        for position, inner in enumerate(scopes):
            if spot.is_list and position:
                name = "list_last_separator" if position == len(scopes) - 1 else "list_separator"
                yield from self._say((Rule(name),), scope, facts, goal)
            if isinstance(spot.content, Rule):
                yield from self._say((spot.content,), inner, facts, goal)
            else:
                yield spot.content(inner.entities)
        if spot.is_list and not scopes:
            yield from self._say((Rule("list_empty"),), scope, facts, goal)

    def _produce(self, name: str, scope: Scope, facts: Facts) -> tuple[Symbol, ...]:
        for production in self.grammar.rules.get(name, ()):
            if not production.condition or any(True for _ in self.solutions(production.condition, scope, facts)):
                return production.symbols
        raise GameFileError(f"the grammar has no form of the rule {name!r} for this state.")

    def _matches(
        self, condition: Condition, at: int, bound: dict[Variable, str], used: set[str], facts: Facts
    ) -> Iterator[dict[Variable, str]]:
        if at == len(condition):
            yield dict(bound)
            return
        asked = condition[at]
        known = [(place, bound[p]) for place, p in enumerate(asked.variables) if p in bound]
        rows = facts.rows_with(asked.predicate, *known[0]) if known else facts.rows(asked.predicate)
        for row in sorted(rows):
            fresh: list[Variable] = []
            for variable, value in zip(asked.variables, row, strict=False):
                if variable in bound:
                    if bound[variable] != value:
                        break
                elif value in used or value not in self.kinds.get(variable[1], ()):
                    break
                else:
                    bound[variable] = value
                    used.add(value)
                    fresh.append(variable)
            else:
                if len(row) == len(asked.variables):
                    yield from self._matches(condition, at + 1, bound, used, facts)
            for variable in fresh:
                used.discard(bound.pop(variable))
