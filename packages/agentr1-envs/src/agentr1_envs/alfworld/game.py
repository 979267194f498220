"""One game, ready to be played: parsed, its things named, its actions joined with its facts as they come up.

A `Game` never changes once it is made (its memo of ground actions only grows), so sessions and threads share it. The
domain and the grammar of a text are read once a process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentr1_envs.alfworld.facts import Facts
from agentr1_envs.alfworld.grammar import ActionText, Entity, Grammar, Rule, Spot, Symbol, read_grammar
from agentr1_envs.alfworld.names import name_things
from agentr1_envs.alfworld.pddl import ActionSchema, Typed, read_domain, read_problem
from agentr1_envs.alfworld.queries import Binding, Conjunction, Query, Solver, compile_query, plan
from agentr1_envs.alfworld.wording import Wording
from agentr1_envs.errors import GameFileError
from agentr1_envs.once import OncePerProcess


@dataclass(frozen=True, slots=True)
class GameFile:
    """A game as its file has it."""

    name: str
    """What errors call it: a task id, or a path."""
    domain: str
    grammar: str
    problem: str
    goal: str
    """What the game says the task is; stands where the grammar says so."""


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """An action of the domain with its queries; shared by the games of a domain."""

    action: ActionSchema
    text: ActionText
    queries: Query
    may_idle: tuple[bool, ...]
    """For each query, whether the action may change nothing; such ground actions are no actions."""
    reads: frozenset[str]
    """Predicates whose change may make the action applicable or not."""
    conditions: tuple[Query, ...]
    """The `when` of each effect; one empty conjunction for an effect without."""


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """A domain and its grammar, compiled."""

    grammar: Grammar
    parents: Mapping[str, str]
    constants: tuple[Typed, ...]
    schemas: tuple[Schema, ...]
    fluents: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Plans:
    """How a game solves the queries of one action."""

    queries: tuple[Solver, ...]
    conditions: tuple[tuple[Solver, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class GroundAction:
    """An action with its parameters filled."""

    number: int
    """Of its schema."""
    arguments: tuple[str, ...]
    command: str
    binding: Binding

    @property
    def key(self) -> tuple[int, tuple[str, ...]]:
        """What tells it from other ground actions, and their order."""
        return self.number, self.arguments


@dataclass(frozen=True, slots=True, eq=False)
class Game:
    """Everything of a game that play does not change."""

    file: GameFile
    rules: Rules
    wording: Wording
    start: Facts
    """The facts at the start: what play changes, over what it never does."""
    plans: tuple[Plans, ...]
    """For each schema."""
    goal: tuple[Solver, ...]
    goal_query: Query
    goal_reads: frozenset[str]
    ground: dict[tuple[int, tuple[str, ...]], GroundAction] = field(default_factory=dict[Any, GroundAction])
    """Ground actions met so far; each is built once a game."""

    def __deepcopy__(self, memo: object) -> "Game":
        return self

    def applicable(self, number: int, facts: Facts) -> list[GroundAction]:
        """The ground actions of a schema that these facts allow, sorted by their arguments."""
        schema, found = self.rules.schemas[number], dict[tuple[str, ...], GroundAction]()
        parameters = [name for name, _ in schema.action.parameters]
        for query, may_idle, solve in zip(schema.queries, schema.may_idle, self.plans[number].queries, strict=True):
            for binding in solve(facts, {}):
                arguments = tuple([binding[name] for name in parameters])
                if arguments not in found and not (may_idle and _idles(schema.action, query, binding)):
                    found[arguments] = self._action(number, arguments)
        return [found[arguments] for arguments in sorted(found)]

    def changes(self, action: GroundAction, facts: Facts) -> list[tuple[str, tuple[str, ...], bool]]:
        """What an action makes true (and false): predicate, arguments, which; the false ones first."""
        gained: dict[tuple[str, tuple[str, ...]], None] = {}
        lost: dict[tuple[str, tuple[str, ...]], None] = {}
        schema = self.rules.schemas[action.number]
        for effect, solvers in zip(schema.action.effects, self.plans[action.number].conditions, strict=True):
            for solve in solvers:
                for binding in solve(facts, action.binding):
                    terms = tuple([binding.get(term, term) for term in effect.terms])
                    (gained if effect.positive else lost)[effect.predicate, terms] = None
        return [(*fact, False) for fact in lost if fact not in gained] + [(*fact, True) for fact in gained]

    def _action(self, number: int, arguments: tuple[str, ...]) -> GroundAction:
        found = self.ground.get((number, arguments))
        if found is None:
            schema = self.rules.schemas[number]
            parameters = schema.action.parameters
            pairs = zip(parameters, arguments, strict=True)
            scope = self.wording.scope({(name[1:], kind): value for (name, kind), value in pairs})
            command = self.wording.text(schema.text.template, scope, self.start)
            binding = dict(zip((name for name, _ in parameters), arguments, strict=True))
            found = self.ground[number, arguments] = GroundAction(number, arguments, command, binding)
        return found


_RULES = OncePerProcess[Rules](kept=8)


def load_game(file: GameFile) -> Game:
    """The game of a file.

    Raises:
        GameFileError: it cannot be read; the message names the game.
    """
    try:
        rules = _RULES.get((file.domain, file.grammar), lambda: _read_rules(file.domain, file.grammar))
        return _build(file, rules)
    except (GameFileError, ValueError, IndexError) as error:
        raise GameFileError(f"game {file.name}: {error}") from error


def _read_rules(domain_text: str, grammar_text: str) -> Rules:
    domain, grammar = read_domain(domain_text), read_grammar(grammar_text)
    fluents = domain.fluents
    schemas: list[Schema] = []
    for action in domain.actions:
        if action.name not in grammar.actions:
            raise GameFileError(f"the grammar has no action {action.name!r}, which the domain has.")
        text = grammar.actions[action.name]
        if asked := _asked(text.template) & fluents:
            raise GameFileError(f"the command of {action.name!r} depends on {min(asked)!r}, which changes in play.")
        queries = compile_query(action.precondition)
        may_idle = tuple(_may_idle(action, query) for query in queries)
        reads = frozenset(name for query in queries for name in query.predicates()) & fluents
        conditions = tuple(compile_query(effect.condition) for effect in action.effects)
        schemas.append(Schema(action, text, queries, may_idle, reads, conditions))
    return Rules(grammar, domain.parents, domain.constants, tuple(schemas), fluents)


def _may_idle(action: ActionSchema, query: Conjunction) -> bool:
    """Whether a ground action may make true only what it asks for, and false only what it makes true."""
    asked = {literal.predicate for literal in query.literals if literal.positive}
    gained = {effect.predicate for effect in action.effects if effect.positive}
    lost = {effect.predicate for effect in action.effects if not effect.positive}
    plain = not any(effect.condition or effect.variables for effect in action.effects)
    return plain and gained <= asked and lost <= gained


def _idles(action: ActionSchema, query: Conjunction, binding: Binding) -> bool:
    """Whether this ground action changes nothing, whatever the state; the stock engine has no such actions."""
    asked = {(lit.predicate, lit.ground(binding)) for lit in query.literals if lit.positive}
    facts = [
        (effect.predicate, tuple([binding.get(t, t) for t in effect.terms]), effect.positive)
        for effect in action.effects
    ]
    gained = {(predicate, terms) for predicate, terms, positive in facts if positive}
    lost = {(predicate, terms) for predicate, terms, positive in facts if not positive}
    return gained <= asked and lost <= gained


def _asked(symbols: tuple[Symbol, ...]) -> set[str]:
    if any(isinstance(symbol, Rule) for symbol in symbols):
        raise GameFileError("a command that is made by a rule of the grammar is not supported.")
    return {asked.predicate for symbol in symbols if isinstance(symbol, Spot) for asked in symbol.given}


def _build(file: GameFile, rules: Rules) -> Game:
    problem = read_problem(file.problem)
    objects = dict((*rules.constants, *problem.objects))
    kinds = _kinds(objects, rules.parents)
    entities: dict[str, Entity] = {}
    for thing, name in name_things(argument for fact in problem.init for argument in fact[1:]).items():
        if thing not in objects:
            raise GameFileError(f"{thing!r} stands in :init but not among the objects.")
        entities[thing] = Entity(thing, objects[thing], name)
    constant = Facts(fact for fact in problem.init if fact[0] not in rules.fluents)
    start = Facts((fact for fact in problem.init if fact[0] in rules.fluents), constant)
    goal = compile_query(problem.goal)
    return Game(
        file=file,
        rules=rules,
        wording=Wording(rules.grammar, entities, kinds),
        start=start,
        plans=tuple(_plans(schema, kinds, start) for schema in rules.schemas),
        goal=tuple(plan(part, (), kinds, start) for part in goal),
        goal_query=goal,
        goal_reads=frozenset(name for part in goal for name in part.predicates()) & rules.fluents,
    )


def _kinds(objects: Mapping[str, str], parents: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Type to its objects, those of its subtypes included; "object" is above all."""
    found: dict[str, set[str]] = {"object": set(objects)}
    for thing, kind in objects.items():
        while kind != "object":
            found.setdefault(kind, set()).add(thing)
            kind = parents.get(kind, "object")
    return {kind: frozenset(things) for kind, things in found.items()}


def _plans(schema: Schema, kinds: Mapping[str, frozenset[str]], start: Facts) -> Plans:
    parameters = schema.action.parameters
    conditions = [
        tuple(plan(part, (*parameters, *effect.variables), kinds, start) for part in condition)
        for effect, condition in zip(schema.action.effects, schema.conditions, strict=True)
    ]
    return Plans(tuple(plan(query, parameters, kinds, start) for query in schema.queries), tuple(conditions))
