from typing import Any

import pytest
from agentr1_envs.webshop.actions import parse_action, without_thoughts


def test_actions_are_read_as_the_published_code_reads_them(golden: Any) -> None:
    for text, name, argument in golden("rewards")["parse_action"]:
        assert parse_action(text) == (name, argument)


@pytest.mark.parametrize(
    ("response", "action"),
    [
        ("search[a]", "search[a]"),
        (" search[a]", " search[a]"),
        ("<think>click[b]</think>\n search[a]\n", "search[a]"),
        ("a</think>b</think>c", "c"),
        ("<think>never ends search[a]", "<think>never ends search[a]"),
    ],
)
def test_thoughts_are_left_out_and_nothing_else_is(response: str, action: str) -> None:
    assert without_thoughts(response) == action
