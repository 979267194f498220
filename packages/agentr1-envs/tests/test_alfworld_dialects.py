import pytest
from agentr1_envs.alfworld.dialects import dialect_of, translated


@pytest.mark.parametrize(
    ("command", "accepted", "spoken", "said"),
    [
        ("put mug 1 in/on desk 2", "0.3", "0.4", "move mug 1 to desk 2"),
        ("move mug 1 to desk 2", "0.3", "0.4", "move mug 1 to desk 2"),
        ("put mug 1 in/on desk 2", "own", "0.4", "put mug 1 in/on desk 2"),
        ("move mug 1 to desk 2", "0.4", "0.3", "put mug 1 in/on desk 2"),
        ("put mug 1 on desk 2", "0.3", "0.4", "put mug 1 on desk 2"),
        ("look", "0.3", "0.4", "look"),
    ],
)
def test_a_command_of_the_other_dialect(command: str, accepted: str, spoken: str, said: str) -> None:
    assert translated(command, accepted, spoken) == said


def test_the_dialect_of_a_grammar() -> None:
    assert dialect_of('template :: "move {o} to {r}";') == "0.4"
    assert dialect_of('template :: "put {o} in/on {r}";') == "0.3"
    assert dialect_of('template :: "drop {o}";') == ""
