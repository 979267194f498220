import json
from collections import Counter

import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.samples import small_world


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
