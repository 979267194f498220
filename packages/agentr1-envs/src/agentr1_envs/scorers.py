"""How answers are scored: pure functions from texts to numbers, each named for its source.

* `gsm8k_official`: openai/grade-school-math, `dataset.py`.
* `gsm8k_lenient`: this project; forgives how a number is written, never its value.
* `hotpot_*`: the official evaluation script of HotpotQA (Yang et al. 2018).
* `musique_f1`: the official evaluation script of MuSiQue (Trivedi et al. 2022).

Nothing here knows of environments, tasks or files.
"""

import re
import string
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import prod

from agentr1_envs.responses import answer_in_tag

_OFFICIAL = re.compile(r"#### (\-?[0-9\.\,]+)")
_MINUS_SIGNS = str.maketrans(dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\ufe63\uff0d", "-"))
_NUMBER = re.compile(
    r"(?<![0-9.])(?P<sign>-?)(?:[$€£¥]\s?)?(?P<inner>-?)"
    r"(?P<digits>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED_CLASS = ("yes", "no", "noanswer")


def gsm8k_gold(solution: str) -> str:
    """The gold number of a GSM8K solution ("... #### 1,080" gives "1080"); a bare number passes through."""
    found = _OFFICIAL.search(solution)
    return (found.group(1) if found else solution).strip().replace(",", "")


def gsm8k_official(response: str, gold: str) -> float:
    """1.0 when the first ``#### number`` of `response`, commas out, is literally the gold number.

    "72.", "72.00" and "$72" fail against "72": that is the official rule.
    `gold` is the official solution text, or its bare number.
    """
    found = _OFFICIAL.search(response)
    return float(found is not None and found.group(1).strip().replace(",", "") == gsm8k_gold(gold))


def gsm8k_lenient(response: str, gold: str) -> float:
    """1.0 when the answer's number equals the gold number as a decimal.

    The answer is the last number in the last ``<answer>`` tag; without a tag, in the last ``\\boxed{}``; without
    either, in the whole text. Thousands commas, currency and percent signs, trailing zeros, a final full stop and
    the Unicode minus signs make no difference.
    """
    tagged = answer_in_tag(response)
    if tagged is None:
        tagged = _last_box(response)
    predicted = _last_number(response if tagged is None else tagged)
    expected = _last_number(gsm8k_gold(gold))
    return float(predicted is not None and predicted == expected)


def hotpot_normalise(answer: str) -> str:
    """Lower case, ASCII punctuation out, the words a/an/the out, blanks squeezed; in that order."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def hotpot_em(prediction: str, gold: str) -> float:
    """Exact match of the normalised texts, 0.0 or 1.0."""
    return float(hotpot_normalise(prediction) == hotpot_normalise(gold))


@dataclass(frozen=True, slots=True)
class Overlap:
    """F1 with the precision and recall it comes from, each in [0, 1]."""

    f1: float
    precision: float
    recall: float


def hotpot_f1(prediction: str, gold: str) -> Overlap:
    """Overlap of the two multisets of normalised words; zero if one side is yes/no/noanswer and they differ."""
    said, true = hotpot_normalise(prediction), hotpot_normalise(gold)
    if said != true and (said in _CLOSED_CLASS or true in _CLOSED_CLASS):
        return Overlap(0.0, 0.0, 0.0)
    said_words, true_words = said.split(), true.split()
    shared = sum((Counter(said_words) & Counter(true_words)).values())
    if shared == 0:
        return Overlap(0.0, 0.0, 0.0)
    precision, recall = shared / len(said_words), shared / len(true_words)
    return Overlap(2 * precision * recall / (precision + recall), precision, recall)


def musique_f1(prediction: str, gold: str) -> float:
    """Overlap of the multisets of normalised words, without HotpotQA's rule on yes and no; empty texts agree."""
    said, true = hotpot_normalise(prediction).split(), hotpot_normalise(gold).split()
    if not said or not true:
        return float(said == true)
    shared = sum((Counter(said) & Counter(true)).values())
    return 2 * shared / (len(said) + len(true))


@dataclass(frozen=True, slots=True)
class SupportScore:
    """How well what was predicted (supporting facts, evidence, or several parts together) matches the gold."""

    em: float
    f1: float
    precision: float
    recall: float


def hotpot_support(predicted: Iterable[tuple[str, int]], gold: Iterable[tuple[str, int]]) -> SupportScore:
    """Set comparison of (title, sentence index) pairs."""
    return compare_sets(predicted, gold)


def compare_sets(predicted: Iterable[Hashable], gold: Iterable[Hashable]) -> SupportScore:
    """Exact match, precision and recall of two sets; two empty sets match and have neither precision nor recall."""
    said, true = set(predicted), set(gold)
    hits = len(said & true)
    precision = hits / len(said) if said else 0.0
    recall = hits / len(true) if true else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
    return SupportScore(float(said == true), f1, precision, recall)


def hotpot_joint(
    prediction: str,
    gold: str,
    predicted_support: Iterable[tuple[str, int]],
    gold_support: Iterable[tuple[str, int]],
) -> SupportScore:
    """Answer and supporting facts together: products of the exact matches, precisions and recalls."""
    answer = hotpot_f1(prediction, gold)
    score = SupportScore(hotpot_em(prediction, gold), answer.f1, answer.precision, answer.recall)
    return joint([score, hotpot_support(predicted_support, gold_support)])


def joint(parts: Sequence[SupportScore]) -> SupportScore:
    """Several parts together: the products of their exact matches, precisions and recalls; no part scores 0."""
    em, precision, recall = (
        prod(values) if parts else 0.0
        for values in ([p.em for p in parts], [p.precision for p in parts], [p.recall for p in parts])
    )
    f1 = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
    return SupportScore(em, f1, precision, recall)


def best_em(prediction: str, golds: Iterable[str]) -> float:
    """The best exact match over several gold answers; 0.0 without any."""
    return max((hotpot_em(prediction, gold) for gold in golds), default=0.0)


def best_f1(prediction: str, golds: Iterable[str]) -> Overlap:
    """The overlap with the gold answer that gives the highest F1; zero without any."""
    return max(
        (hotpot_f1(prediction, gold) for gold in golds),
        key=lambda overlap: overlap.f1,
        default=Overlap(0.0, 0.0, 0.0),
    )


def _last_box(text: str) -> str | None:
    """Content of the last ``\\boxed{...}`` with balanced braces."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    opening = start + len("\\boxed")
    for position in range(opening, len(text)):
        depth += (text[position] == "{") - (text[position] == "}")
        if depth == 0:
            return text[opening + 1 : position]
    return None


def _last_number(text: str) -> Decimal | None:
    numbers = list(_NUMBER.finditer(text.translate(_MINUS_SIGNS)))
    if not numbers:
        return None
    last = numbers[-1]
    value = Decimal(last.group("digits").replace(",", ""))
    return -value if last.group("sign") or last.group("inner") else value
