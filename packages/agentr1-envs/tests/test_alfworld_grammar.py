import pytest
from agentr1_envs.alfworld.facts import Facts
from agentr1_envs.alfworld.grammar import Entity, Rule, read_condition, read_grammar, read_symbols, read_value
from agentr1_envs.alfworld.wording import Wording
from agentr1_envs.errors import GameFileError

GRAMMAR = '''
# rules
grammar :: """
{
    "list": [{"rhs": "[{#a(o)# | in(o:thing, r:room)}]"}],
    # a comment between the rules
    "a(o)": [{"rhs": "{o.indefinite} {o.name}"}],
    "state": [{"condition": "in(o:thing, r:room) & in(p:thing, r:room)", "rhs": "two or more"},
              {"condition": "in(o:thing, r:room)", "rhs": "one"}],
    "list_empty": [{"rhs": "nothing"}], "list_separator": [{"rhs": ", "}], "list_last_separator": [{"rhs": ", and "}]
}
""";
action Look { template :: "look at {r}"; feedback :: "\n  In {r.name}: #list#. UNKNOWN GOAL"; }
'''


def wording() -> Wording:
    entities = {name: Entity(name, kind, f"{name} 1") for name, kind in (("x", "room"), ("b", "thing"), ("a", "thing"))}
    return Wording(read_grammar(GRAMMAR), entities, {"thing": frozenset("ab"), "room": frozenset("x")})


@pytest.mark.parametrize(
    ("facts", "listed"),
    [([], "nothing"), ([("in", "b", "x")], "a b 1"), ([("in", "b", "x"), ("in", "a", "x")], "a a 1, and a b 1")],
)
def test_lists_come_in_the_order_of_the_sorted_facts(facts: list[tuple[str, ...]], listed: str) -> None:
    said = wording()
    look = said.grammar.actions["look"]
    scope = said.scope({("r", "room"): "x"})
    text = said.text(look.feedback, scope, Facts(facts), 'say "#hi#; [{x}]"')
    assert text == f'In x 1: {listed}. say "#hi#; [{{x}}]"'
    assert said.text(look.template, scope, Facts()) == "look at x 1"


def test_two_variables_are_never_the_same_thing() -> None:
    said = wording()
    say = lambda *facts: said.text((Rule("state"),), said.scope({}), Facts(facts))  # noqa: E731
    assert say(("in", "a", "x")) == "one"
    assert say(("in", "a", "x"), ("in", "b", "x")) == "two or more"
    with pytest.raises(GameFileError, match="'state'"):
        say()


def test_an_expression_is_no_python() -> None:
    entity = {"o": Entity("id", "thing", "")}
    assert read_value("o.name or o.id")(entity) == "id"
    assert read_value("o.indefinite + ' ' + o.definite")(entity) == "a the"
    for text in ("o.__class__", "__import__('os')", "o.name * 2", "1", "o.name +"):
        with pytest.raises(GameFileError, match="not supported"):
            read_value(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("action look { template :: 'x'; }", "cannot be read"),
        ('action look { template :: "x"; }', "no feedback"),
        ('action look { template :: "x"; feedback :: "y";', "no end"),
        ('grammar :: """{""";', "no JSON"),
        ("look", "'look'"),
    ],
)
def test_a_broken_grammar_is_refused(text: str, message: str) -> None:
    with pytest.raises(GameFileError, match=message):
        read_grammar(text)


def test_a_condition_must_be_a_conjunction_and_a_list_closed() -> None:
    assert [asked.predicate for asked in read_condition("p(a:t) & not_q(a:t, b)")] == ["p", "not_q"]
    with pytest.raises(GameFileError, match="conjunction"):
        read_condition("p(a) | q(b)")
    with pytest.raises(GameFileError, match="not closed"):
        read_symbols("[{o.name | p(o:t)}")
