from agentr1_envs.scoring import score_number, score_text
from agentr1_envs.tasks import Task

TASK = Task("t", "train", "q", ("1,080", "a thousand"))


def test_text_takes_the_best_gold_answer() -> None:
    score = score_text(TASK, "A Thousand.")
    assert (score.reward, score.success, score.info["em"]) == (1.0, True, 1.0)
    partly = score_text(TASK, "one thousand", "f1")
    assert 0.0 < partly.reward < 1.0
    assert not partly.success
    assert partly.info["em"] == 0.0


def test_an_empty_answer_never_matches_a_gold_that_normalises_to_nothing() -> None:
    the = Task("t", "train", "q", ("The",))
    assert score_text(the, "the").success
    assert not score_text(the, " ").success


def test_numbers_have_two_scores_and_pay_by_the_lenient_one() -> None:
    task = Task("t", "train", "q", ("1080",))
    tagged = score_number(task, "so <answer>1,080.0</answer>", "1,080.0")
    assert (tagged.reward, dict(tagged.info)) == (1.0, {"gsm8k_official": 0.0, "gsm8k_lenient": 1.0})
    plain = score_number(task, "<answer>1,080</answer>", "1,080")
    assert dict(plain.info) == {"gsm8k_official": 1.0, "gsm8k_lenient": 1.0}
    marked = score_number(task, "#### 1080 <answer>5</answer>", "5")
    assert (marked.success, marked.info["gsm8k_official"]) == (False, 1.0)
    assert score_number(task, "1080", None).info["gsm8k_official"] == 0.0
