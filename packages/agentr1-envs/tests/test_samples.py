import json
import re
from collections import Counter

import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.samples import small_world, word_problems
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


def test_the_corpus_file_is_the_world() -> None:
    lines = [json.loads(line) for line in small_world.CORPUS_PATH.read_text(encoding="utf-8").splitlines()]
    assert [(line["title"], tuple(line["sentences"])) for line in lines] == [
        (article.title, article.sentences) for article in small_world.articles()
    ]
    assert len({line["title"] for line in lines}) == len(lines) > 100


def test_every_question_needs_two_articles() -> None:
    articles = {article.title: article for article in small_world.articles()}
    train, dev = small_world.small_world("train"), small_world.small_world("dev")
    texts = [task.question for task in (*train, *dev)]
    assert len(set(texts)) == len(texts)
    assert len(train) > 400
    assert len(dev) > 80
    for task in (*train, *dev):
        assert len(task.supporting_titles) == 2
        first, last = (articles[title].sentences[place] for title, place in task.supporting)
        if task.kind == "bridge":
            # The first article links to the second, and only the second has the answer.
            assert task.supporting[1][0] in first
            assert task.answers[0] in last
            assert task.answers[0] not in task.question
            assert task.supporting[1][0] not in task.question
        assert {passage.title for passage in task.context} >= set(task.supporting_titles)
        assert len({passage.title for passage in task.context}) == small_world.PARAGRAPHS
    assert {task.kind for task in dev} == {"bridge", "comparison"}
    assert Counter(task.answers[0] for task in train if task.answers[0] in ("yes", "no"))["yes"] >= 5


def test_the_world_has_two_splits() -> None:
    with pytest.raises(SettingError, match="'train', 'dev'"):
        small_world.small_world("test")
