"""Reads PDDL: a domain (ADL, typing) and a problem. Text in, records out; nothing here plays.

Read are `:types`, `:constants`, `:predicates`, `:action`, `:objects`, `:init` and `:goal`. Costs and other numeric
fluents are left out, since no text depends on them. Names are lower-cased, as the stock engine does.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from agentr1_envs.errors import GameFileError

Tree = str | list["Tree"]
"""A symbol, or a bracketed list."""
Typed = tuple[str, str]
"""A name and its type."""
Fact = tuple[str, ...]
"""Predicate, then its arguments."""

_COMMENT = re.compile(r";[^\n]*")
_TOKEN = re.compile(r"[()]|[^\s()]+")


@dataclass(frozen=True, slots=True)
class Effect:
    """One literal an action makes true or false."""

    predicate: str
    terms: tuple[str, ...]
    positive: bool
    variables: tuple[Typed, ...] = ()
    """Variables of the `forall` around it."""
    condition: Tree = field(default_factory=list["Tree"])
    """The formula of the `when` around it; an empty list is always true."""


@dataclass(frozen=True, slots=True)
class ActionSchema:
    """An action with its parameters open."""

    name: str
    parameters: tuple[Typed, ...]
    precondition: Tree
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """What holds for every game of a kind."""

    name: str
    parents: dict[str, str]
    """Type to the type above it."""
    constants: tuple[Typed, ...]
    actions: tuple[ActionSchema, ...]

    @property
    def fluents(self) -> frozenset[str]:
        """The predicates that some action changes."""
        return frozenset(effect.predicate for action in self.actions for effect in action.effects)


@dataclass(frozen=True, slots=True)
class Problem:
    """One game: its objects, what holds at the start, and what wins."""

    objects: tuple[Typed, ...]
    init: tuple[Fact, ...]
    goal: Tree


def read_domain(text: str) -> Domain:
    """The domain in a text.

    Raises:
        GameFileError: the text is no domain this reader understands.
    """
    name = ""
    parents: dict[str, str] = {}
    constants: tuple[Typed, ...] = ()
    actions: list[ActionSchema] = []
    for head, rest in _sections(text, "domain"):
        if head == "domain":
            name = symbol(rest[0])
        elif head == ":types":
            parents = dict(typed(rest))
        elif head == ":constants":
            constants = typed(rest)
        elif head == ":action":
            actions.append(_action(rest))
        elif head in (":derived", ":durative-action"):
            raise GameFileError(f"the domain has {head}, which is not supported.")
    if not actions:
        raise GameFileError("the domain has no :action.")
    return Domain(name, parents, constants, tuple(actions))


def read_problem(text: str) -> Problem:
    """The problem in a text.

    Raises:
        GameFileError: the text is no problem, or lacks objects, an initial state or a goal.
    """
    objects: tuple[Typed, ...] = ()
    init: list[Fact] = []
    goal: Tree = []
    for head, rest in _sections(text, "problem"):
        if head == ":objects":
            objects = typed(rest)
        elif head == ":init":
            init = [fact for fact in map(_fact, rest) if fact]
        elif head == ":goal" and rest:
            goal = rest[0]
    for what, found in ((":objects", objects), (":init", init), (":goal", goal)):
        if not found:
            raise GameFileError(f"the problem has no {what}.")
    return Problem(objects, tuple(init), goal)


def typed(items: Sequence[Tree]) -> tuple[Typed, ...]:
    """``a b - t c`` as pairs (a, t), (b, t), (c, "object")."""
    pairs: list[Typed] = []
    waiting: list[str] = []
    tokens = iter(items)
    for item in tokens:
        if item == "-":
            kind = symbol(next(tokens, ""))
            pairs += [(name, kind) for name in waiting]
            waiting = []
        else:
            waiting.append(symbol(item))
    return (*pairs, *((name, "object") for name in waiting))


def symbol(tree: Tree) -> str:
    """The tree as one word.

    Raises:
        GameFileError: it is a list, or nothing.
    """
    if not isinstance(tree, str) or not tree:
        raise GameFileError(f"a name was expected, found {_shown(tree)}.")
    return tree


def branch(tree: Tree) -> tuple[str, list[Tree]]:
    """Head and rest of a list; ("", []) for an empty one.

    Raises:
        GameFileError: it is a word, or starts with a list.
    """
    if isinstance(tree, str):
        raise GameFileError(f"a bracketed formula was expected, found {tree!r}.")
    return (symbol(tree[0]), tree[1:]) if tree else ("", [])


def _sections(text: str, kind: str) -> Iterator[tuple[str, list[Tree]]]:
    tree = _parse(text)
    head, parts = branch(tree)
    if head != "define" or not parts or branch(parts[0])[0] != kind:
        raise GameFileError(f"a PDDL {kind} starts with (define ({kind} NAME), found {_shown(tree)}.")
    return map(branch, parts)


def _parse(text: str) -> Tree:
    stack: list[list[Tree]] = [[]]
    for token in cast("list[str]", _TOKEN.findall(_COMMENT.sub("", text).lower())):
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise GameFileError("the PDDL text closes a bracket that was never opened.")
            inner = stack.pop()
            stack[-1].append(inner)
        else:
            stack[-1].append(token)
    if len(stack) > 1 or len(stack[0]) != 1:
        raise GameFileError("the PDDL text is no single bracketed form; it may be cut off.")
    return stack[0][0]


def _action(parts: Sequence[Tree]) -> ActionSchema:
    fields = {symbol(parts[i]): parts[i + 1] for i in range(1, len(parts) - 1, 2)}
    parameters = fields.get(":parameters", [])
    if isinstance(parameters, str):
        raise GameFileError(f"action {symbol(parts[0])!r}: its parameters are no list.")
    effects = tuple(_effects(fields.get(":effect", []), (), []))
    return ActionSchema(symbol(parts[0]), typed(parameters), fields.get(":precondition", []), effects)


def _effects(tree: Tree, variables: tuple[Typed, ...], condition: Tree) -> Iterator[Effect]:
    head, rest = branch(tree)
    if head == "and":
        for part in rest:
            yield from _effects(part, variables, condition)
    elif head == "forall":
        bound = rest[0] if isinstance(rest[0], list) else [rest[0]]
        yield from _effects(rest[1], (*variables, *typed(bound)), condition)
    elif head == "when":
        both: Tree = ["and", condition, rest[0]] if condition else rest[0]
        yield from _effects(rest[1], variables, both)
    elif head == "not":
        name, terms = branch(rest[0])
        yield Effect(name, tuple(map(symbol, terms)), False, variables, condition)
    elif head and head not in ("increase", "decrease", "assign"):
        yield Effect(head, tuple(map(symbol, rest)), True, variables, condition)


def _fact(tree: Tree) -> Fact:
    """The fact, or () for a number and for what is said to be false."""
    head, rest = branch(tree)
    return () if head in ("=", "not") else (head, *map(symbol, rest))


def _shown(tree: Tree) -> str:
    shown = repr(tree)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
