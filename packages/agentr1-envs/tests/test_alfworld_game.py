from dataclasses import replace

import pytest
from agentr1_envs.alfworld.game import GameFile, load_game
from agentr1_envs.alfworld.session import Session
from agentr1_envs.errors import GameFileError

DOMAIN = """
(define (domain lamps) (:types lamp room you)
  (:action press :parameters (?l - lamp) :precondition (not (broken ?l))
    :effect (and (when (on ?l) (not (on ?l))) (when (not (on ?l)) (on ?l))
                 (forall (?m - lamp) (when (wired ?l ?m) (warm ?m)))))
  (:action walk :parameters (?y - you ?a - room ?b - room) :precondition (and (at ?y ?a) (door ?b))
    :effect (and (not (at ?y ?a)) (at ?y ?b))))
"""
GRAMMAR = '''
grammar :: """
{"intro": [{"rhs": "Reach: UNKNOWN GOAL"}],
 "lit": [{"condition": "on(l:lamp)", "rhs": "on"}, {"condition": "not_on(l:lamp)", "rhs": "off again"}]}
""";
action press { template :: "press {l}"; feedback :: "{l.name} is #lit#"; }
action walk { template :: "walk to {b}"; feedback :: "You walk."; }
'''
PROBLEM = """
(define (problem p) (:domain lamps)
  (:objects l_bar_1 l_bar_2 l_bar_3 - lamp r_bar_1 r_bar_2 - room me - you)
  (:init (broken l_bar_3) (wired l_bar_1 l_bar_2) (near l_bar_1) (at me r_bar_1) (door r_bar_1) (door r_bar_2))
  (:goal (and (forall (?l - lamp) (or (broken ?l) (on ?l))) (warm l_bar_2))))
"""
FILE = GameFile("the lamps", DOMAIN, GRAMMAR, PROBLEM, "light")


def test_effects_with_conditions_see_the_state_before_the_action() -> None:
    session = Session(load_game(FILE))
    assert session.intro() == "Reach: light"
    assert [session.step("press l 3"), session.step("press l 3")] == ["l 3 is on", "l 3 is off again"]
    assert session.facts.has("warm", ("l_bar_2",))
    assert not session.won
    session.step("press l 3")
    assert session.step("press l 2") == "l 2 is on"
    assert session.won


def test_an_action_that_can_change_nothing_is_none() -> None:
    session = Session(load_game(FILE))
    assert "walk to r 1" in session.admissible
    assert "walk to r 2" not in session.admissible, "r 2 is where one stands"
    session.step("walk to r 1")
    assert "walk to r 2" in session.admissible
    assert "walk to r 1" not in session.admissible


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"domain": DOMAIN.replace(":action press", ":action push")}, "no action 'push'"),
        ({"domain": "(define (domain lamps))"}, "no :action"),
        ({"problem": PROBLEM.replace("(near l_bar_1)", "(near l_bar_9)")}, "'l_bar_9' stands in :init"),
        ({"problem": ""}, "cut off"),
        ({"grammar": GRAMMAR.replace('"press {l}"', '"press [{l.name | on(l:lamp)}]"')}, "'on', which changes"),
        ({"grammar": GRAMMAR.replace('"press {l}"', '"press #lit#"')}, "made by a rule"),
    ],
)
def test_a_broken_game_is_named(changed: dict[str, str], message: str) -> None:
    with pytest.raises(GameFileError, match=f"^game the lamps: .*{message}"):
        load_game(replace(FILE, **changed))
