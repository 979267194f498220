import re
from collections import Counter

import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.samples import word_problems
from agentr1_envs.samples.word_problems import expression_value


def test_there_are_enough_problems_and_no_text_is_in_both_splits() -> None:
    train, test = word_problems.word_problems("train"), word_problems.word_problems("test")
    assert (len(train), len(test)) == (4000, 400)
    texts = [task.question for task in (*train, *test)]
    assert len(set(texts)) == len(texts)
    # Whatever the settings: the split of a text depends on the text alone.
    other = word_problems.word_problems("test", (1, 2, 3, 4), 9)
    assert not {task.question for task in other} & {task.question for task in train}


@pytest.mark.parametrize("max_number", [9, 20, 500])
def test_the_plan_computes_the_answer_from_the_numbers_of_the_text(max_number: int) -> None:
    for task in word_problems.word_problems("train", (1, 2, 3, 4), max_number)[::7]:
        numbers = [int(number) for number in re.findall(r"\d+", task.question)]
        assert max(numbers) <= max_number
        amount = numbers[0]
        assert len(task.plan) == len(numbers) - 1
        for expression, number in zip(task.plan, numbers[1:], strict=True):
            assert expression == f"{amount}{expression.strip('0123456789')}{number}"
            amount = expression_value(expression)
            assert eval(expression) == amount  # division is exact
            assert 1 <= amount <= max(word_problems.LARGEST_AMOUNT, max_number)
        assert task.answers == (str(amount),)
        assert task.solution.endswith(f"#### {amount}")


def test_the_problems_stay_small_and_mixed() -> None:
    tasks = word_problems.word_problems("train")
    assert max(len(task.question.split()) for task in tasks) < 50
    words = {word.strip(".,?") for task in tasks for word in task.question.split() if not word[0].isdigit()}
    assert len(words) < 120
    signs = Counter(sign for task in tasks for expression in task.plan for sign in expression if sign in "+-*/")
    assert min(signs.values()) > 0.1 * sum(signs.values())
    # No constant answer gets far.
    assert Counter(task.answers for task in tasks).most_common(1)[0][1] < 0.06 * len(tasks)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dev",), "split"),
        (("train", ()), "operations"),
        (("train", (5,)), "operations"),
        (("train", (2,), 4), "max_number"),
    ],
)
def test_wrong_settings_are_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        word_problems.word_problems(*arguments)
