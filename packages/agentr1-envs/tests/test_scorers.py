import json
from pathlib import Path

import pytest
from agentr1_envs import scorers
from agentr1_envs.scorers import Overlap, SupportScore


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("#### 72", 1.0),
        ("so\n#### 1,072 and #### 72", 0.0),  # the first match counts
        ("#### 72.", 0.0),
        ("#### 72.00", 0.0),
        ("#### $72", 0.0),
        ("####72", 0.0),
        ("72", 0.0),
    ],
)
def test_gsm8k_official_is_literal(response: str, expected: float) -> None:
    assert scorers.gsm8k_official(response, "work\n#### 72") == expected


def test_gsm8k_official_drops_commas_on_both_sides() -> None:
    assert scorers.gsm8k_official("#### 1080", "#### 1,080") == 1.0
    assert scorers.gsm8k_official("#### 1,080", "1080") == 1.0
    assert scorers.gsm8k_official("#### -3", "#### -3") == 1.0


@pytest.mark.parametrize(
    "response",
    [
        "72",
        "<answer>72</answer>",
        "<answer>72.00</answer>",
        "<answer>$72.</answer>",
        "<answer> 9 * 8 = 72 dollars</answer> or 5",
        "<answer>5</answer> wait <answer>72</answer>",
        "it is 3, so \\boxed{72} of 100",
        "\\boxed{\\text{about } 72\\%}",
        "#### 72",
        "3 + 69 = 72%.",
        "<answer>72",
        "€072",
    ],
)
def test_gsm8k_lenient_accepts(response: str) -> None:
    assert scorers.gsm8k_lenient(response, "#### 72") == 1.0


@pytest.mark.parametrize(
    "response", ["", "none", "<answer></answer> 72", "<answer>seventy-two</answer>", "72.5", "-72", "\u221272", "720"]
)
def test_gsm8k_lenient_rejects(response: str) -> None:
    assert scorers.gsm8k_lenient(response, "#### 72") == 0.0


@pytest.mark.parametrize("response", ["-5", "\u22125", "-$5", "$-5.0", "it falls to \u20135"])
def test_gsm8k_lenient_reads_signs(response: str) -> None:
    assert scorers.gsm8k_lenient(response, "-5") == 1.0
    assert scorers.gsm8k_lenient(response, "5") == 0.0


def test_gsm8k_lenient_takes_no_range_for_a_sign() -> None:
    assert scorers.gsm8k_lenient("10-5", "5") == 1.0
    assert scorers.gsm8k_lenient("1,234,567", "#### 1,234,567") == 1.0
    assert scorers.gsm8k_lenient("0.50", ".5") == 1.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Beatles!", "beatles"),
        ("  An  apple, a day ", "apple day"),
        ("theory of a-theism", "theory of atheism"),
        ("U.S.A.", "usa"),
        ("The", ""),
        ("“Quoted”", "“quoted”"),  # only ASCII punctuation goes
    ],
)
def test_hotpot_normalise(text: str, expected: str) -> None:
    assert scorers.hotpot_normalise(text) == expected


def test_hotpot_f1_by_hand() -> None:
    # {the (gone), cat, sat, sat} against {cat, sat, down}: 2 shared of 3 and of 3.
    found = scorers.hotpot_f1("the cat sat sat", "cat sat down")
    assert found == Overlap(pytest.approx(2 / 3), pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert scorers.hotpot_f1("x", "y") == Overlap(0.0, 0.0, 0.0)
    assert scorers.hotpot_em("the Cat.", "cat") == 1.0


@pytest.mark.parametrize(("said", "gold"), [("yes it is", "yes"), ("no", "no way"), ("noanswer", "noanswer here")])
def test_hotpot_f1_is_zero_beside_yes_and_no(said: str, gold: str) -> None:
    assert scorers.hotpot_f1(said, gold).f1 == 0.0
    assert scorers.hotpot_f1(gold, said).f1 == 0.0
    assert scorers.hotpot_f1(gold, gold).f1 == 1.0


def test_hotpot_support_and_joint_by_hand() -> None:
    gold = [("A", 0), ("B", 1)]
    assert scorers.hotpot_support(gold, reversed(gold)) == SupportScore(1.0, 1.0, 1.0, 1.0)
    half = scorers.hotpot_support([("A", 0), ("A", 1), ("C", 0), ("D", 0)], gold)
    assert half == SupportScore(0.0, pytest.approx(1 / 3), 0.25, 0.5)
    assert scorers.hotpot_support([], gold) == SupportScore(0.0, 0.0, 0.0, 0.0)
    joint = scorers.hotpot_joint("cat sat", "cat", [("A", 0), ("B", 0)], gold)
    # answer precision 1/2, recall 1; support precision 1/2, recall 1/2.
    assert joint == SupportScore(0.0, pytest.approx(2 * 0.25 * 0.5 / 0.75), 0.25, 0.5)


def test_best_of_several_golds() -> None:
    assert scorers.best_em("b", ["a", "b"]) == 1.0
    assert scorers.best_f1("b c", ["a", "b"]).f1 == pytest.approx(2 / 3)
    assert scorers.best_em("b", []) == 0.0


@pytest.mark.parametrize(("split", "count", "with_commas"), [("train", 7473, 79), ("test", 1319, 14)])
def test_gold_answers_of_the_real_gsm8k(shared_data: Path, split: str, count: int, with_commas: int) -> None:
    lines = (shared_data / "gsm8k" / f"{split}.jsonl").read_bytes().splitlines()
    golds = [json.loads(line)["answer"] for line in lines]
    assert len(golds) == count
    assert sum("," in gold.split("#### ")[1] for gold in golds) == with_commas
    for gold in golds:
        number = scorers.gsm8k_gold(gold)
        assert str(int(number)) == number
        assert scorers.gsm8k_official(gold, gold) == 1.0
        assert scorers.gsm8k_lenient(gold, gold) == 1.0
        assert scorers.gsm8k_lenient(f"<answer>{int(number):,}.00</answer>", gold) == 1.0
        assert scorers.gsm8k_lenient(f"<answer>{int(number) + 1}</answer>", gold) == 0.0
        assert scorers.gsm8k_official(f"#### {number}.", gold) == 0.0


def test_gold_answers_of_the_real_hotpotqa(shared_data: Path) -> None:
    rows = json.loads((shared_data / "hotpotqa" / "hotpot_dev_v1_simplified.json").read_text(encoding="utf-8"))
    assert len(rows) == 7405
    for row in rows:
        assert scorers.hotpot_em(row["answer"], row["answer"]) == 1.0
        if scorers.hotpot_normalise(row["answer"]):
            assert scorers.hotpot_f1(row["answer"], row["answer"]).f1 == 1.0


def test_musique_f1_knows_no_rule_on_yes_and_no() -> None:
    assert scorers.musique_f1("yes indeed", "Yes") == pytest.approx(2 / 3)
    assert scorers.hotpot_f1("yes indeed", "Yes").f1 == 0.0
    assert (scorers.musique_f1("the", "A."), scorers.musique_f1("", "x"), scorers.musique_f1("a b b", "b c")) == (
        1.0,
        0.0,
        pytest.approx(2 * (1 / 2) * (1 / 2)),
    )


def test_joint_is_the_product_of_its_parts() -> None:
    one = scorers.SupportScore(1.0, 0.5, 0.5, 0.5)
    other = scorers.compare_sets([("T", 0), ("U", 1)], [("T", 0)])
    assert other == scorers.SupportScore(0.0, pytest.approx(2 / 3), 0.5, 1.0)
    assert scorers.joint([one, other]) == scorers.SupportScore(0.0, pytest.approx(1 / 3), 0.25, 0.5)
    assert scorers.joint([one]) == one
    assert scorers.joint([]) == scorers.SupportScore(0.0, 0.0, 0.0, 0.0)
    assert scorers.compare_sets([], []) == scorers.SupportScore(1.0, 0.0, 0.0, 0.0)
