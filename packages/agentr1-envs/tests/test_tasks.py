import pytest
from agentr1_envs import scorers
from agentr1_envs.errors import SettingError, UnknownTaskError
from agentr1_envs.tasks import Passage, Task, TaskSet, count_empty_gold

TASKS = TaskSet("toy", "train", tuple(Task(f"t{i}", "train", "q", (str(i),)) for i in range(5)), "here", "corpus.jsonl")


def test_tasks_are_found_by_id() -> None:
    assert TASKS.find("t3") is TASKS[3]
    assert [task.task_id for task in TASKS] == list(TASKS.task_ids)
    with pytest.raises(UnknownTaskError, match=r"'t33'.*5 tasks of toy/train \(here\).*Did you mean") as caught:
        TASKS.find("t33")
    assert isinstance(caught.value, KeyError)


def test_an_unknown_id_among_very_many_gets_no_suggestion_and_no_delay() -> None:
    many = TaskSet("toy", "train", tuple(Task(f"t{i}", "train", "q", ("a",)) for i in range(90_000)), "here")
    with pytest.raises(UnknownTaskError) as caught:
        many.find("t90000")
    assert "Did you mean" not in str(caught.value)


def test_a_filter_keeps_everything_else() -> None:
    even = TASKS.where(lambda task: int(task.answers[0]) % 2 == 0, "no even number")
    assert (even.task_ids, even.corpus) == (("t0", "t2", "t4"), "corpus.jsonl")
    with pytest.raises(SettingError, match="no number above 9"):
        TASKS.where(lambda task: int(task.answers[0]) > 9, "no number above 9")


def test_sentences_join_to_one_text() -> None:
    assert Passage("t", ("One.", " Two.", "Three.")).text == "One. Two. Three."


def test_supporting_titles_stand_once_in_order() -> None:
    task = Task("t", "dev", "q", ("a",), supporting=(("B", 1), ("A", 0), ("B", 2)))
    assert task.supporting_titles == ("B", "A")


def test_empty_gold_is_counted() -> None:
    tasks = [Task("a", "dev", "q", ("The",)), Task("b", "dev", "q", ("!", "x")), Task("c", "dev", "q", ("x",))]
    assert count_empty_gold(tasks, scorers.hotpot_normalise) == 1
