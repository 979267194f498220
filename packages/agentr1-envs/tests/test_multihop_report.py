"""The official evaluations in closed form."""

import pytest
from agentr1_envs.multihop_report import hotpot_report, musique_report, twowiki_report
from agentr1_envs.tasks import Task

FACTS = (("T", 0), ("U", 1))
TASKS = [
    Task("a", "dev", "q", ("Ada Lovelace",), supporting=FACTS, evidences=(("Ada", "born", "1815"), ("X", "is", "Y"))),
    Task("b", "dev", "q", ("yes",), supporting=(("V", 0),), evidences=(("V", "is", "W"),)),
]


def test_answers_alone() -> None:
    report = hotpot_report(TASKS, {"a": "the Lovelace", "b": "Yes."})
    assert report == {"em": 1 / 2, "f1": (2 / 3 + 1) / 2, "prec": 1.0, "recall": (1 / 2 + 1) / 2}
    assert hotpot_report([], {}) == {}


def test_supporting_facts_and_both_together() -> None:
    report = hotpot_report(TASKS, {"a": "Lovelace", "b": "yes"}, {"a": [("T", 0), ("T", 1)], "b": [("V", 0)]})
    assert (report["sp_em"], report["sp_prec"], report["sp_recall"], report["sp_f1"]) == (0.5, 0.75, 0.75, 0.75)
    assert report["joint_em"] == 0.5
    assert report["joint_prec"] == (1 * 0.5 + 1) / 2
    assert report["joint_recall"] == (0.5 * 0.5 + 1) / 2
    assert report["joint_f1"] == pytest.approx((2 * 0.5 * 0.25 / 0.75 + 1) / 2)


def test_a_missing_prediction_scores_nothing_and_still_counts() -> None:
    report = hotpot_report(TASKS, {"b": "yes"}, {"a": FACTS})
    assert (report["em"], report["sp_em"], report["joint_em"], report["joint_f1"]) == (0.5, 0.5, 0.0, 0.0)


def test_evidence_is_normalised_and_joined() -> None:
    answers, support = {"a": "Ada Lovelace", "b": "no"}, {"a": FACTS, "b": [("V", 0)]}
    evidences = {"a": [("the Ada", "Born", "1815."), ("X", "is", "Z")], "b": [("v", "is", "w")]}
    report = twowiki_report(TASKS, answers, support, evidences)
    assert (report["evi_em"], report["evi_prec"], report["evi_recall"], report["evi_f1"]) == (0.5, 0.75, 0.75, 0.75)
    assert (report["joint_em"], report["joint_prec"], report["joint_recall"]) == (0.0, 0.25, 0.25)
    assert twowiki_report(TASKS, answers, support, {})["joint_prec"] == 0.0


def test_musique_takes_the_best_alias_and_counts_paragraphs() -> None:
    task = Task("m", "dev", "q", ("G. Stanley Hall", "Stanley Hall"), supporting=(("T", 6), ("T", 10)))
    other = Task("n", "dev", "q", ("no",), supporting=(("V", 2),))
    report = musique_report([task, other], {"m": "stanley hall", "n": "no idea"}, {"m": [6, 3, 10], "n": [2]})
    assert (report["answer_em"], report["answer_f1"]) == (0.5, pytest.approx((1 + 2 / 3) / 2))
    assert report["support_f1"] == pytest.approx((2 * (2 / 3) * 1 / (2 / 3 + 1) + 1) / 2)
    assert musique_report([task, other], {}) == {"answer_em": 0.0, "answer_f1": 0.0}
