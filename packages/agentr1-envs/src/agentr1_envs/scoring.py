"""From scorers to what an answer pays: reward, success, and the scores that `info` reports."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from agentr1_envs.agent_env import InfoValue
from agentr1_envs.scorers import (
    SupportScore,
    best_em,
    best_f1,
    gsm8k_lenient,
    gsm8k_official,
    hotpot_support,
    joint,
)
from agentr1_envs.tasks import Task

TextReward = Literal["em", "f1"]
TEXT_REWARDS: tuple[TextReward, ...] = ("em", "f1")

TEXT_SCORES: Mapping[str, InfoValue] = {"em": 0.0, "f1": 0.0, "precision": 0.0, "recall": 0.0}
"""What `score_text` reports, before there is an answer."""
SUPPORT_SCORES: Mapping[str, InfoValue] = {
    f"{part}_{name}": 0.0 for part in ("sp", "joint") for name in ("em", "f1", "precision", "recall")
}
"""What `score_support` reports, before there is an answer."""
NUMBER_SCORES: Mapping[str, InfoValue] = {"gsm8k_official": 0.0, "gsm8k_lenient": 0.0}
"""What `score_number` reports, before there is an answer."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a final answer is worth."""

    reward: float
    success: bool
    info: Mapping[str, InfoValue]


def score_text(task: Task, answer: str, reward: TextReward = "em") -> Score:
    """HotpotQA's exact match and F1 against the best gold answer; an empty answer scores 0 whatever the gold."""
    given = bool(answer.strip())
    em = best_em(answer, task.answers) if given else 0.0
    overlap = best_f1(answer, task.answers)
    info: dict[str, InfoValue] = {
        "em": em,
        "f1": overlap.f1,
        "precision": overlap.precision,
        "recall": overlap.recall,
    }
    return Score(em if reward == "em" else overlap.f1, em == 1.0, info)


def score_support(task: Task, answer: str, facts: Iterable[tuple[str, int]]) -> dict[str, InfoValue]:
    """HotpotQA's metrics of supporting facts, and of facts and answer together."""
    support = hotpot_support(facts, task.supporting)
    overlap = best_f1(answer, task.answers)
    said = SupportScore(best_em(answer, task.answers), overlap.f1, overlap.precision, overlap.recall)
    return {
        f"{part}_{name}": getattr(score, name)
        for part, score in (("sp", support), ("joint", joint([said, support])))
        for name in ("em", "f1", "precision", "recall")
    }


def score_number(task: Task, response: str, prediction: str | None) -> Score:
    """GSM8K's two scores; the lenient one is the reward.

    The official rule looks for "#### 72" in the response. A response that writes its answer in a tag instead is read
    as "#### " and the content of the tag.
    """
    official = response if "####" in response or prediction is None else f"#### {prediction}"
    lenient = gsm8k_lenient(response, task.answers[0])
    info: dict[str, InfoValue] = {
        "gsm8k_official": gsm8k_official(official, task.answers[0]),
        "gsm8k_lenient": lenient,
    }
    return Score(lenient, lenient == 1.0, info)
