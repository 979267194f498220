"""A small planner in the native engine: it finds commands that win from a state, within a time limit.

First a relaxed plan: nothing that was true ever becomes false, so it is found layer by layer. The things it touches
are few; a breadth-first search over the actions among those things alone gives a real plan. When that finds none, the
search runs over all actions.
"""

import time
from collections import deque
from collections.abc import Iterable

from agentr1_envs.alfworld.facts import Facts
from agentr1_envs.alfworld.game import Game, GroundAction
from agentr1_envs.alfworld.queries import Binding, Conjunction
from agentr1_envs.alfworld.session import Session

Atom = tuple[str, tuple[str, ...]]

_MOST_STATES = 20_000
_MOST_GOALS = 8


def find_plan(session: Session, seconds: float) -> list[str] | None:
    """Commands that win from where the session stands, which is left as it is.

    Args:
        session: a game in play.
        seconds: how long to search at most.

    Returns:
        The commands; None when there is no plan, or none was found in time.
    """
    deadline = time.monotonic() + seconds
    if session.won:
        return []
    for things in _relevant_things(session, deadline):
        plan = _search(session, things, deadline)
        if plan is not None:
            return plan
    return _search(session, None, deadline)


def _search(session: Session, things: frozenset[str] | None, deadline: float) -> list[str] | None:
    """Breadth first, over the actions among `things` (all, when None)."""
    asked = session.game.goal_reads.union(*(schema.reads for schema in session.game.rules.schemas))
    waiting: deque[tuple[Session, tuple[str, ...]]] = deque([(session, ())])
    seen = {_key(session, asked)}
    while waiting and len(seen) < _MOST_STATES:
        state, path = waiting.popleft()
        for action in state.actions:
            if things is not None and not things.issuperset(action.arguments):
                continue
            changes = session.game.changes(action, state.facts)
            if asked.isdisjoint(predicate for predicate, _, _ in changes):
                continue  # looking around
            if time.monotonic() > deadline:
                return None
            after = state.copy()
            after.apply(action)
            if after.won:
                return [*path, action.command]
            key = _key(after, asked)
            if key not in seen:
                seen.add(key)
                waiting.append((after, (*path, action.command)))
    return None


def _key(session: Session, asked: frozenset[str]) -> frozenset[tuple[str, ...]]:
    """What tells states apart: the facts that some action or the goal asks for."""
    return frozenset(fact for fact in session.facts.own() if fact[0] in asked)


class _Growing(Facts):
    """Facts that only ever come in: what was false at the start, or was made false once, may count as false."""

    __slots__ = ("_start",)

    def __init__(self, start: Facts) -> None:
        super().__init__()
        self._adopt(start)
        self._start = start

    def lacks(self, predicate: str, arguments: tuple[str, ...]) -> bool:
        """True when the fact can be false."""
        return self._start.lacks(predicate, arguments) or self.has(f"not_{predicate}", arguments)


class _Layers:
    """The relaxed problem: which atoms can come about, when first, and by which action."""

    def __init__(self, session: Session) -> None:
        self.game: Game = session.game
        self.facts: Facts = _Growing(session.facts)
        self.level: dict[Atom, int] = {}
        self.maker: dict[Atom, GroundAction] = {}
        self.depth = 0
        self._known: set[tuple[int, tuple[str, ...]]] = set()

    def grow(self) -> bool:
        """One more layer; false when nothing new comes about."""
        self.depth += 1
        fresh: list[tuple[Atom, GroundAction]] = []
        for number in range(len(self.game.rules.schemas)):
            for action in self.game.applicable(number, self.facts):
                if action.key not in self._known:
                    self._known.add(action.key)
                    fresh += [
                        ((predicate if true else f"not_{predicate}", terms), action)
                        for predicate, terms, true in self.game.changes(action, self.facts)
                    ]
        grown = False
        for (predicate, terms), action in fresh:
            if not self.facts.has(predicate, terms):
                self.facts.add(predicate, terms)
                self.level[predicate, terms] = self.depth
                self.maker[predicate, terms] = action
                grown = True
        return grown

    def needs(self, query: Conjunction, binding: Binding) -> list[Atom]:
        """The atoms of a solved query that had to be brought about."""
        found: list[Atom] = []
        for literal in query.literals:
            atom = (literal.predicate if literal.positive else f"not_{literal.predicate}", literal.ground(binding))
            if atom in self.level:
                found.append(atom)
        return found

    def things(self, atoms: Iterable[Atom]) -> frozenset[str]:
        """Everything that the actions of a relaxed plan for these atoms touch."""
        open_atoms, done = list(atoms), set[Atom]()
        touched: set[str] = set()
        while open_atoms:
            atom = open_atoms.pop()
            if atom in done:
                continue
            done.add(atom)
            action = self.maker[atom]
            touched.update(action.arguments)
            open_atoms += self._preconditions(action, self.level[atom])
        return frozenset(touched)

    def _preconditions(self, action: GroundAction, level: int) -> list[Atom]:
        """The cheapest way to make the action possible below a level."""
        schema, plans = self.game.rules.schemas[action.number], self.game.plans[action.number]
        best: tuple[int, list[Atom]] | None = None
        for query, solve in zip(schema.queries, plans.queries, strict=True):
            for binding in solve(self.facts, action.binding):
                atoms = self.needs(query, binding)
                cost = sum(self.level[atom] for atom in atoms)
                if all(self.level[atom] < level for atom in atoms) and (best is None or cost < best[0]):
                    best = cost, atoms
        return best[1] if best else []


def _relevant_things(session: Session, deadline: float) -> list[frozenset[str]]:
    """For the ways to reach the goal that look cheapest: the things a relaxed plan touches, and those at hand now."""
    layers = _Layers(session)
    game = session.game
    ways: list[tuple[int, list[Atom], list[str]]] = []
    while time.monotonic() < deadline:
        grown = layers.grow()
        for query, solve in zip(game.goal_query, game.goal, strict=True):
            for binding in solve(layers.facts, {}):
                atoms = layers.needs(query, binding)
                ways.append((sum(layers.level[atom] for atom in atoms), atoms, sorted(binding.values())))
        if ways or not grown:
            break
    ways.sort(key=lambda way: (way[0], way[2]))
    return [layers.things(atoms) | set(values) for _, atoms, values in ways[:_MOST_GOALS]]
