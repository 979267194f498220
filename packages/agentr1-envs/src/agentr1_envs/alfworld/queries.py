"""Formulas as queries: a disjunction of joins over the facts, solved for the variables.

A formula is brought into disjunctive normal form once. Each disjunct is a list of literals; `exists` only adds
variables, `forall` becomes "there is none for which not". Literals are put into an order in which each one narrows the
next, so a solution is found by a few look-ups in the indexes of `Facts`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from agentr1_envs.alfworld.facts import Facts
from agentr1_envs.alfworld.pddl import Tree, Typed, branch, symbol, typed
from agentr1_envs.errors import GameFileError

Binding = dict[str, str]
"""Variable to object."""
Objects = Mapping[str, frozenset[str]]
"""Type to the objects of it, those of its subtypes included."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A predicate or "=" over variables (with a question mark) and objects."""

    predicate: str
    terms: tuple[str, ...]
    positive: bool = True

    def open(self, bound: Mapping[str, object] | set[str]) -> list[str]:
        """Variables that are not bound yet."""
        return [term for term in self.terms if term.startswith("?") and term not in bound]

    def ground(self, binding: Binding) -> tuple[str, ...]:
        """The terms with every variable replaced."""
        return tuple([binding.get(term, term) for term in self.terms])


@dataclass(frozen=True, slots=True)
class Conjunction:
    """Literals that hold together, and queries none of which may have a solution."""

    literals: tuple[Literal, ...] = ()
    variables: tuple[Typed, ...] = ()
    """Variables that `exists` brought in."""
    none_of: tuple[tuple["Conjunction", ...], ...] = ()

    def predicates(self) -> set[str]:
        """Every predicate that is asked."""
        nested = {name for query in self.none_of for part in query for name in part.predicates()}
        return nested | {literal.predicate for literal in self.literals}


Query = tuple[Conjunction, ...]
"""True when one of them is; no conjunction at all is never true."""


def compile_query(tree: Tree) -> Query:
    """A formula as a query.

    Raises:
        GameFileError: a connective is not known.
    """
    return tuple(_normal(tree, True, iter(range(10**9))))


def _normal(tree: Tree, positive: bool, fresh: Iterator[int]) -> list[Conjunction]:
    head, rest = branch(tree)
    if head == "not":
        return _normal(rest[0], not positive, fresh)
    if head == "imply":
        return _normal(["or", ["not", rest[0]], rest[1]], positive, fresh)
    if head in ("and", "or", ""):
        parts = [_normal(part, positive, fresh) for part in rest]
        if (head == "or") == positive:
            return [conjunction for part in parts for conjunction in part]
        return [_join(chosen) for chosen in product(*parts)]
    if head in ("exists", "forall"):
        names, body = _renamed(rest, fresh)
        if (head == "exists") == positive:
            inner = _normal(body, positive, fresh)
            return [replace(part, variables=(*names, *part.variables)) for part in inner]
        inner = _normal(body, not positive, fresh)
        return [Conjunction(none_of=(tuple(replace(p, variables=(*names, *p.variables)) for p in inner),))]
    if head in ("when", "increase", "assign", "<", ">", "<=", ">="):
        raise GameFileError(f"{head!r} stands in a formula, where it is not supported.")
    return [Conjunction((Literal(head, tuple(map(symbol, rest)), positive),))]


def _join(parts: tuple[Conjunction, ...]) -> Conjunction:
    return Conjunction(
        tuple(literal for part in parts for literal in part.literals),
        tuple(variable for part in parts for variable in part.variables),
        tuple(query for part in parts for query in part.none_of),
    )


def _renamed(rest: list[Tree], fresh: Iterator[int]) -> tuple[tuple[Typed, ...], Tree]:
    """Variables and body of a quantifier, with names that occur nowhere else."""
    variables = typed(rest[0] if isinstance(rest[0], list) else [rest[0]])
    names = {name: f"{name}#{next(fresh)}" for name, _ in variables}
    return tuple((names[name], kind) for name, kind in variables), _substitute(rest[1], names)


def _substitute(tree: Tree, names: Mapping[str, str]) -> Tree:
    return names.get(tree, tree) if isinstance(tree, str) else [_substitute(part, names) for part in tree]


Solver = Callable[[Facts, Binding], Iterator[Binding]]
"""Gives each extension of the binding that makes the query true. The same dict each time: copy what you keep."""


def plan(query: Conjunction, variables: tuple[Typed, ...], objects: Objects, start: Facts) -> Solver:
    """The query with its literals in a good order for facts like those at the start.

    Args:
        query: what is asked.
        variables: the free variables with their types; those the binding holds are taken as given.
        objects: the objects of each type.
        start: only its counts are looked at.
    """
    kinds = {name: objects.get(kind, frozenset()) for name, kind in (*variables, *query.variables)}
    nested = [[plan(part, variables + query.variables, objects, start) for part in none] for none in query.none_of]

    def solve(facts: Facts, binding: Binding) -> Iterator[Binding]:
        order = orders.get(given := frozenset(binding))
        if order is None:
            order = orders[given] = _order(query.literals, set(given), kinds, start)
        for found in _solve(order, 0, facts, dict(binding), kinds):
            if not any(_any(solver(facts, found)) for none in nested for solver in none):
                yield found

    orders: dict[frozenset[str], list[Literal | str]] = {}
    return solve


def _any(solutions: Iterator[Binding]) -> bool:
    return next(solutions, None) is not None


def _order(
    literals: tuple[Literal, ...], bound: set[str], kinds: Mapping[str, frozenset[str]], start: Facts
) -> list[Literal | str]:
    """Literals and single variables (to be tried out) in the order they are solved; greedy by expected rows."""
    order: list[Literal | str] = []
    left = list(literals)
    while left:
        if tests := [literal for literal in left if not literal.open(bound)]:
            order += tests
            left = [literal for literal in left if literal.open(bound)]
            continue
        joins = [literal for literal in left if literal.positive and literal.predicate != "="]
        if not joins:
            variable = left[0].open(bound)[0]
            order.append(variable)
            bound.add(variable)
            continue
        best = min(joins, key=lambda literal: _cost(literal, bound, start))
        order.append(best)
        bound.update(best.open(bound))
        left.remove(best)
    unasked = sorted(kinds.keys() - bound)
    return [*order, *unasked]


def _cost(literal: Literal, bound: set[str], start: Facts) -> tuple[bool, float]:
    rows = start.count(literal.predicate)
    keyed = len(literal.terms) > len(literal.open(bound))
    return rows > 1 and not keyed, rows**0.5 if keyed else rows


def _solve(
    order: list[Literal | str], at: int, facts: Facts, binding: Binding, kinds: Mapping[str, frozenset[str]]
) -> Iterator[Binding]:
    while at < len(order):  # tests need no recursion
        item = order[at]
        if isinstance(item, str):
            break
        if item.open(binding):
            break
        terms = item.ground(binding)
        if item.predicate == "=":
            right = (terms[0] == terms[1]) == item.positive
        else:
            right = facts.has(item.predicate, terms) if item.positive else facts.lacks(item.predicate, terms)
        if not right:
            return
        at += 1
    else:
        yield binding
        return
    if isinstance(item, str):
        for value in kinds[item]:
            binding[item] = value
            yield from _solve(order, at + 1, facts, binding, kinds)
        binding.pop(item, None)
        return
    opened = item.open(binding)
    terms = item.ground(binding)
    place = next((i for i, term in enumerate(terms) if not term.startswith("?")), None)
    rows = facts.rows(item.predicate) if place is None else facts.rows_with(item.predicate, place, terms[place])
    for row in rows:
        if len(row) == len(terms) and _fits(terms, row, binding, kinds):
            yield from _solve(order, at + 1, facts, binding, kinds)
        for name in opened:
            binding.pop(name, None)


def _fits(terms: tuple[str, ...], row: tuple[str, ...], binding: Binding, kinds: Mapping[str, frozenset[str]]) -> bool:
    """Bind the open terms to a row; false when it contradicts them or a type."""
    for term, value in zip(terms, row, strict=True):
        if not term.startswith("?"):
            if term != value:
                return False
        elif term in binding:
            if binding[term] != value:
                return False
        elif value not in kinds[term]:
            return False
        else:
            binding[term] = value
    return True
