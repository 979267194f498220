import itertools
from typing import Any

import pytest
from agentr1_envs.alfworld.facts import Facts
from agentr1_envs.alfworld.pddl import Tree
from agentr1_envs.alfworld.queries import compile_query, plan
from agentr1_envs.errors import GameFileError
from hypothesis import given
from hypothesis import strategies as st

THINGS = ("a", "b", "c")
OBJECTS = {"object": frozenset(THINGS), "first": frozenset({"a"})}
FREE = (("?x", "object"), ("?y", "object"))


def truth(tree: Tree, binding: dict[str, str], facts: set[tuple[str, ...]]) -> bool:
    """The meaning of a formula, straight from its definition."""
    if not tree:
        return True
    head, *rest = tree
    value: Any = lambda part: truth(part, binding, facts)  # noqa: E731
    if head == "not":
        return not value(rest[0])
    if head == "and":
        return all(map(value, rest))
    if head == "or":
        return any(map(value, rest))
    if head == "imply":
        return not value(rest[0]) or value(rest[1])
    if head in ("exists", "forall"):
        name, kind = rest[0][0], rest[0][2]
        tries = [truth(rest[1], {**binding, name: thing}, facts) for thing in sorted(OBJECTS[kind])]
        return any(tries) if head == "exists" else all(tries)
    terms = tuple(binding.get(term, term) for term in rest)
    return terms[0] == terms[1] if head == "=" else (head, *terms) in facts


terms = st.sampled_from(["?x", "?y", "?z", "a"])
atoms = st.one_of(
    st.tuples(st.just("p"), terms).map(list),
    st.tuples(st.sampled_from(["q", "="]), terms, terms).map(list),
)


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    kinds = st.sampled_from(["object", "first"])
    variables = st.tuples(st.sampled_from(["?x", "?z"]), kinds).map(lambda pair: [pair[0], "-", pair[1]])
    return st.one_of(
        st.tuples(st.just("not"), inner).map(list),
        st.tuples(st.sampled_from(["and", "or", "imply"]), inner, inner).map(list),
        st.tuples(st.sampled_from(["exists", "forall"]), variables, inner).map(list),
    )


formulas = st.recursive(atoms, grown, max_leaves=5).map(lambda tree: ["exists", ["?z", "-", "object"], tree])
fact_sets = st.sets(
    st.one_of(
        st.tuples(st.just("p"), st.sampled_from(THINGS)),
        st.tuples(st.just("q"), st.sampled_from(THINGS), st.sampled_from(THINGS)),
    )
)


@given(formulas, fact_sets)
def test_a_query_has_exactly_the_solutions_of_its_formula(tree: Any, facts: set[tuple[str, ...]]) -> None:
    store = Facts(facts)
    found = {
        (binding["?x"], binding["?y"])
        for part in compile_query(tree)
        for binding in plan(part, FREE, OBJECTS, store)(store, {})
    }
    wanted = {(x, y) for x, y in itertools.product(THINGS, THINGS) if truth(tree, {"?x": x, "?y": y}, facts)}
    assert found == wanted


def test_an_empty_formula_is_always_true() -> None:
    (part,) = compile_query([])
    assert list(plan(part, (), OBJECTS, Facts())(Facts(), {})) == [{}]


def test_a_connective_that_is_not_known_is_refused() -> None:
    with pytest.raises(GameFileError, match="'when'"):
        compile_query(["when", ["p", "a"], ["p", "b"]])
