import pytest
from agentr1_envs.responses import answer_in_tag, facts_in_tag, without_thinking


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer> a b </answer>", "a b"),
        ("<answer>a</answer><answer>b</answer>", "b"),
        ("<ANSWER>a\nb</ANSWER>", "a\nb"),
        ("<answer>cut", "cut"),
        ("<answer>a</answer> then <answer>cut", "cut"),
        ("<answer>a <answer>b</answer>", "b"),
        ("<answer></answer>", ""),
        ("no tag", None),
        ("</answer>", None),
    ],
)
def test_answer_in_tag(text: str, expected: str | None) -> None:
    assert answer_in_tag(text) == expected


def test_a_megabyte_is_read_at_once() -> None:
    assert answer_in_tag("<answer>" * 125_000) == ""
    assert answer_in_tag("<answer>x</answer>" * 50_000) == "x"
    assert without_thinking("<think>" * 125_000) == ""


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("plain", "plain"),
        ("<think>a</think> b ", "b"),
        ("opened by the prompt</think>b", "b"),
        ("<think>a</think>b<think>c</think>d", "d"),
        ("a<think>never ends", "a"),
        ("<think>never ends <answer>5</answer>", ""),
    ],
)
def test_without_thinking(text: str, spoken: str) -> None:
    assert without_thinking(text) == spoken


def test_facts_are_titles_with_numbers_in_brackets() -> None:
    text = (
        "<facts>old [9]</facts> <facts>\nOxley Bridge [0, 2]\n Ada [Lovelace] [1]\nno number\nB[3 3]\n</facts><answer>x"
    )
    assert facts_in_tag(text) == (("Oxley Bridge", 0), ("Oxley Bridge", 2), ("Ada [Lovelace]", 1), ("B", 3))
    assert facts_in_tag("<facts>A [1]<answer>x</answer>") == facts_in_tag("<facts>A [1]") == (("A", 1),)
    assert facts_in_tag("nothing") == ()
