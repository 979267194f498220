import pytest
from agentr1_envs.alfworld.pddl import read_domain, read_problem, typed
from agentr1_envs.errors import GameFileError

DOMAIN = """
(define (domain Tiny) ; a comment with (brackets
  (:requirements :adl :typing)
  (:types box - thing thing room)
  (:constants Hall - room)
  (:functions (total-cost) - number)
  (:action Shut :parameters (?b - box ?r - room)
    :precondition (and (in ?b ?r) (or (not (locked ?b)) (old ?b)))
    :effect (and (shut ?b) (increase (total-cost) 1) (when (old ?b) (not (old ?b)))
                 (forall (?x - thing) (when (near ?x ?b) (moved ?x))))))
"""


def test_a_domain_is_read_with_its_conditional_effects() -> None:
    domain = read_domain(DOMAIN)
    assert (domain.name, domain.parents) == ("tiny", {"box": "thing", "thing": "object", "room": "object"})
    assert domain.constants == (("hall", "room"),)
    action = domain.actions[0]
    assert action.parameters == (("?b", "box"), ("?r", "room"))
    shown = [(e.predicate, e.terms, e.positive, e.variables, e.condition) for e in action.effects]
    assert shown == [
        ("shut", ("?b",), True, (), []),
        ("old", ("?b",), False, (), ["old", "?b"]),
        ("moved", ("?x",), True, (("?x", "thing"),), ["near", "?x", "?b"]),
    ]
    assert domain.fluents == {"shut", "old", "moved"}


def test_a_problem_is_read_without_its_numbers() -> None:
    problem = read_problem(
        "(define (problem p) (:domain tiny) (:objects a b - box c) "
        "(:init (In a c) (= (total-cost) 0)) (:goal (shut a)))"
    )
    assert problem.objects == (("a", "box"), ("b", "box"), ("c", "object"))
    assert problem.init == (("in", "a", "c"),)
    assert problem.goal == ["shut", "a"]


def test_a_comma_is_part_of_the_type() -> None:
    """The official domain has such a type, of which there are no objects; the stock engine reads it the same way."""
    assert typed(["?l", "-", "location,", "?r", "-", "receptacle"]) == (("?l", "location,"), ("?r", "receptacle"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(define (problem p)", "cut off"),
        ("(define (problem p)))", "never opened"),
        ("(define (domain d))", "starts with"),
        ("(define (problem p) (:init (a b)) (:goal (a b)))", "no :objects"),
        ("(define (problem p) (:objects a) (:init (x a)))", "no :goal"),
        ("(define (problem p) (:objects a) (:init word) (:goal (x a)))", "'word'"),
        ("", "cut off"),
    ],
)
def test_a_broken_problem_is_refused(text: str, message: str) -> None:
    with pytest.raises(GameFileError, match=message):
        read_problem(text)
