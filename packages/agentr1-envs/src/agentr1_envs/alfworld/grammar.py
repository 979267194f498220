"""Reads the grammar of a game: how commands look, and what the game says. Text in, records out.

A rule's text is a row of symbols: plain text, ``#rule#``, ``{expression | condition}`` and ``[{...}]`` for a list. An
expression is a sum or an `or` of strings and attributes (``o.indefinite + ' ' + o.name``); it is compiled, never
evaluated as Python. A condition is a conjunction of facts with typed variables (``holds(a:agent, o:object)``).
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from agentr1_envs.errors import GameFileError

GOAL = "UNKNOWN GOAL"
"""What stands in the grammar where the game's goal goes."""

_TOKEN = re.compile(
    r'\s+|#[^\n]*|(?P<block>"""(.*?)""")|(?P<text>"([^"]*)")|(?P<name>[\w/-]+)|(?P<mark>::|[{};])', re.S
)
_FACT = re.compile(r"\s*([\w@-]+)\(([^()]*)\)\s*(?:&|$)")
_PLAIN = re.compile(r'[^;|"<>\[\]#{}]+')
_RULE = re.compile(r"#([\w()/!<>\-\s,.]+)#")
_SPOT = re.compile(
    r"\{\s*(?:#(?P<rule>[\w()/!<>\-\s,.]+)#|(?P<value>[^|\[\]{}<>]+?))\s*(?:\|\s*(?P<given>[^;|{}\[\]#]+))?\}"
)


@dataclass(frozen=True, slots=True)
class Entity:
    """A thing of the game, as the texts name it."""

    id: str
    type: str
    name: str
    indefinite: str = "a"
    definite: str = "the"


Value = Callable[[Mapping[str, Entity]], str]


@dataclass(frozen=True, slots=True)
class Asked:
    """One fact of a condition; arguments are variables (name, type)."""

    predicate: str
    variables: tuple[tuple[str, str], ...]


Condition = tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """``#name#``."""

    name: str


@dataclass(frozen=True, slots=True)
class Spot:
    """``{content | given}``: its content once for each way to make the condition true; a list joins them."""

    content: Rule | Value
    given: Condition
    is_list: bool


Symbol = str | Rule | Spot


@dataclass(frozen=True, slots=True)
class Production:
    """One right-hand side of a rule, used when its condition holds."""

    symbols: tuple[Symbol, ...]
    condition: Condition


@dataclass(frozen=True, slots=True)
class ActionText:
    """How the command of an action looks, and what the game answers."""

    template: tuple[Symbol, ...]
    feedback: tuple[Symbol, ...]
    pattern: str
    """The template as it stands in the file."""


@dataclass(frozen=True, slots=True, eq=False)
class Grammar:
    """Rules by name, and texts by (lower-cased) action."""

    rules: Mapping[str, tuple[Production, ...]]
    actions: Mapping[str, ActionText]


def read_grammar(text: str) -> Grammar:
    """The grammar in a text.

    Raises:
        GameFileError: the text cannot be read.
    """
    rules: dict[str, tuple[Production, ...]] = {}
    actions: dict[str, ActionText] = {}
    tokens = _tokens(text)
    for _, word in tokens:
        if word == "grammar":
            rules.update(_rules(_value(tokens, word)))
        elif word == "action":
            name, fields = _action(tokens)
            if "grammar" in fields:
                rules.update(_rules(fields["grammar"]))
            missing = {"template", "feedback"} - fields.keys()
            if missing:
                raise GameFileError(f"the grammar's action {name!r} has no {min(missing)}.")
            template, feedback = fields["template"], fields["feedback"]
            actions[name.lower()] = ActionText(read_symbols(template), read_symbols(feedback), template)
        else:
            raise GameFileError(f"the grammar holds {word!r} where 'grammar' or 'action' was expected.")
    return Grammar(rules, actions)


def read_symbols(text: str) -> tuple[Symbol, ...]:
    """The symbols of a right-hand side; blanks in front are dropped and reading ends where no symbol fits."""
    text = text.replace("\\n", "\n").lstrip()
    symbols: list[Symbol] = []
    at = 0
    while at < len(text):
        bracket = text[at] == "["
        if found := _PLAIN.match(text, at):
            symbols.append(found.group())
        elif found := _RULE.match(text, at):
            symbols.append(Rule(found.group(1)))
        elif found := _SPOT.match(text, at + bracket):
            content = Rule(found["rule"]) if found["rule"] else read_value(found["value"])
            symbols.append(Spot(content, read_condition(found["given"] or ""), bracket))
        else:
            break
        at = found.end()
        if bracket and isinstance(symbols[-1], Spot):
            if text[at : at + 1] != "]":
                raise GameFileError(f"the grammar's list {text!r:.80} is not closed.")
            at += 1
    return tuple(symbols)


def read_condition(text: str) -> Condition:
    """``p(a:t, b) & q(b)`` as records.

    Raises:
        GameFileError: it is something else.
    """
    asked: list[Asked] = []
    at = 0
    while text[at:].strip():
        found = _FACT.match(text, at)
        if found is None:
            raise GameFileError(f"the grammar's condition {text!r:.120} is no conjunction of facts.")
        words = [word.strip() for word in found.group(2).split(",") if word.strip()]
        pairs = [(name.strip(), kind.strip() or name.strip()) for name, _, kind in (w.partition(":") for w in words)]
        asked.append(Asked(found.group(1), tuple(pairs)))
        at = found.end()
    return tuple(asked)


def read_value(text: str) -> Value:
    """An expression over the named entities.

    Raises:
        GameFileError: it is more than a sum or an `or` of strings and attributes.
    """
    try:
        return _compiled(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, TypeError) as error:
        raise GameFileError(f"the grammar's expression {text!r:.80} is not supported.") from error


def _compiled(node: ast.expr) -> Value:
    match node:
        case ast.Constant(value=str(text)):
            return lambda entities: text
        case ast.Name(id=name):
            return lambda entities: entities[name].name
        case ast.Attribute(value=ast.Name(id=name), attr=("id" | "type" | "name" | "indefinite" | "definite") as field):
            return lambda entities: cast("str", getattr(entities[name], field))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _compiled(left), _compiled(right)
            return lambda entities: first(entities) + second(entities)
        case ast.BoolOp(op=ast.Or(), values=values):
            choices = [_compiled(value) for value in values]
            return lambda entities: next(filter(None, (choice(entities) for choice in choices)), "")
        case _:
            raise TypeError(ast.dump(node))


def _rules(block: str) -> dict[str, tuple[Production, ...]]:
    text = "\n".join(line for line in block.split("\n") if not line.lstrip().startswith("#"))
    try:
        content: dict[str, list[dict[str, Any]]] = json.loads(text)
        return {
            name: tuple(
                Production(read_symbols(entry["rhs"]), read_condition(entry.get("condition", ""))) for entry in entries
            )
            for name, entries in content.items()
        }
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        if isinstance(error, GameFileError):
            raise
        raise GameFileError(f"the rules of the grammar are no JSON of the known form: {error!r}") from error


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise GameFileError(f"the grammar cannot be read from {text[at : at + 40]!r} on.")
        at = found.end()
        if found.lastgroup is None:
            continue
        kind = found.lastgroup
        yield kind, found.group(2) if kind == "block" else found.group(4) if kind == "text" else found.group()


def _value(tokens: Iterator[tuple[str, str]], field: str) -> str:
    mark, value, end = (next(tokens, ("", "the end")) for _ in range(3))
    if mark[1] != "::" or value[0] not in ("block", "text") or end[1] != ";":
        raise GameFileError(f'the grammar\'s {field} is not of the form {field} :: "...";')
    return value[1]


def _action(tokens: Iterator[tuple[str, str]]) -> tuple[str, dict[str, str]]:
    name, opening = next(tokens, ("", ""))[1], next(tokens, ("", ""))[1]
    fields: dict[str, str] = {}
    for _, word in tokens:
        if word == "}" and opening == "{":
            return name, fields
        fields[word] = _value(tokens, word)
    raise GameFileError(f"the grammar's action {name!r} has no end.")
