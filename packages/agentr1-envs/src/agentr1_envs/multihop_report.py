"""The official evaluation of predictions for a whole data set: HotpotQA, 2WikiMultihopQA, MuSiQue.

Pure: from gold tasks and predictions by id to means over all tasks. A question without a prediction scores 0, as in the
official scripts; each function names its own. Episodes are scored by `scoring.py` instead.
"""

from collections.abc import Iterable, Mapping, Sequence

from agentr1_envs.scorers import (
    Overlap,
    SupportScore,
    best_em,
    best_f1,
    compare_sets,
    hotpot_normalise,
    joint,
    musique_f1,
)
from agentr1_envs.tasks import Task

Facts = Iterable[tuple[str, int]]
Triples = Iterable[tuple[str, str, str]]

_NOTHING = SupportScore(0.0, 0.0, 0.0, 0.0)


def hotpot_report(
    tasks: Sequence[Task], answers: Mapping[str, str], support: Mapping[str, Facts] | None = None
) -> dict[str, float]:
    """`hotpot_evaluate_v1.py`: answer, supporting facts and both together, by the official names.

    Args:
        tasks: the gold.
        answers: predicted answer by task id.
        support: predicted supporting facts, (title, sentence index), by task id; None leaves their metrics out.
    """
    rows: list[dict[str, float]] = []
    for task in tasks:
        answer = _answer(task, answers)
        row = _named("", answer)
        if support is not None:
            facts = compare_sets(support[task.task_id], task.supporting) if task.task_id in support else None
            both = [answer, facts] if task.task_id in answers and facts is not None else []
            row |= _named("sp_", facts or _NOTHING) | _named("joint_", joint(both))
        rows.append(row)
    return _means(rows)


def twowiki_report(
    tasks: Sequence[Task],
    answers: Mapping[str, str],
    support: Mapping[str, Facts],
    evidences: Mapping[str, Triples],
) -> dict[str, float]:
    """`2wikimultihop_evaluate.py`: as HotpotQA, with evidence triples, normalised as answers; joint is of all three."""
    rows: list[dict[str, float]] = []
    for task in tasks:
        name = task.task_id
        answer = _answer(task, answers)
        facts = compare_sets(support[name], task.supporting) if name in support else None
        triples = compare_sets(_normal(evidences[name]), _normal(task.evidences)) if name in evidences else None
        whole = name in answers and facts is not None and triples is not None
        parts = [answer, facts, triples] if whole else []
        rows.append(
            _named("", answer)
            | _named("sp_", facts or _NOTHING)
            | _named("evi_", triples or _NOTHING)
            | _named("joint_", joint([part for part in parts if part is not None]))
        )
    return _means(rows)


def musique_report(
    tasks: Sequence[Task], answers: Mapping[str, str], support: Mapping[str, Iterable[int]] | None = None
) -> dict[str, float]:
    """MuSiQue's `evaluate_v1.0.py`: answer EM and F1 over all aliases, F1 of supporting paragraphs by their place."""
    rows: list[dict[str, float]] = []
    for task in tasks:
        said = answers.get(task.task_id, "")
        row = {
            "answer_em": best_em(said, task.answers) if task.task_id in answers else 0.0,
            "answer_f1": max(musique_f1(said, gold) for gold in task.answers) if task.task_id in answers else 0.0,
        }
        if support is not None:
            row["support_f1"] = compare_sets(support.get(task.task_id, ()), (place for _, place in task.supporting)).f1
        rows.append(row)
    return _means(rows)


def _answer(task: Task, answers: Mapping[str, str]) -> SupportScore:
    if task.task_id not in answers:
        return _NOTHING
    said = answers[task.task_id]
    overlap: Overlap = best_f1(said, task.answers)
    return SupportScore(best_em(said, task.answers), overlap.f1, overlap.precision, overlap.recall)


def _normal(triples: Triples) -> list[tuple[str, ...]]:
    return [tuple(hotpot_normalise(part) for part in triple) for triple in triples]


def _named(prefix: str, score: SupportScore) -> dict[str, float]:
    return {
        f"{prefix}em": score.em,
        f"{prefix}f1": score.f1,
        f"{prefix}prec": score.precision,
        f"{prefix}recall": score.recall,
    }


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]} if rows else {}
