"""What an environment plays: `Task` (one question with its gold), and `TaskSet` (a split of them).

Records only: where tasks come from is `loader.py`'s business, how they are scored is `scorers.py`'s.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from agentr1_envs.errors import SettingError, UnknownTaskError, did_you_mean

_SUGGEST_UP_TO = 10_000
"""Above this many tasks an unknown id gets no suggestion: comparing with each would take seconds."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One titled paragraph."""

    title: str
    sentences: tuple[str, ...]
    """In reading order, exactly as the data has them (leading blanks included)."""

    @property
    def text(self) -> str:
        """The sentences as one paragraph."""
        return "".join(s if s[:1].isspace() or i == 0 else f" {s}" for i, s in enumerate(self.sentences)).strip()


@dataclass(frozen=True, slots=True)
class Task:
    """One question, its gold answers, and what a scripted expert needs."""

    task_id: str
    split: str
    question: str
    answers: tuple[str, ...]
    """Gold answers; the first is the main one, the others are aliases."""
    solution: str = ""
    """The gold worked solution, as the data has it."""
    plan: tuple[str, ...] = ()
    """What the scripted expert calls its tool with, in order: expressions, or search queries."""
    supporting: tuple[tuple[str, int], ...] = ()
    """Gold supporting facts: (title, sentence index); for MuSiQue (title, place among the question's paragraphs)."""
    context: tuple[Passage, ...] = ()
    """Paragraphs that come with the question."""
    context_titles: tuple[str, ...] = ()
    """Titles of the paragraphs that come with it, where their text stands in the corpus only."""
    kind: str = ""
    """The data's own type of question ("bridge", "comparison", ...)."""
    level: str = ""
    """The data's own difficulty ("easy", "medium", "hard")."""
    evidences: tuple[tuple[str, str, str], ...] = ()
    """Gold evidence of 2WikiMultihopQA: (subject, relation, object)."""

    @property
    def supporting_titles(self) -> tuple[str, ...]:
        """Distinct titles of the supporting facts, in order of first mention."""
        return tuple(dict.fromkeys(title for title, _ in self.supporting))


@dataclass(frozen=True, eq=False)
class TaskSet:
    """The tasks of one split, in file order, with ids that occur once. Two sets are equal when they are one object."""

    name: str
    split: str
    tasks: tuple[Task, ...]
    source: str
    """Where they came from: a path, or "bundled sample"."""
    corpus: str = ""
    """Path of the passages that belong to them; empty when there are none."""
    skipped_rows: tuple[str, ...] = field(default=(), repr=False)
    """One line for each row that was left out by choice."""

    @cached_property
    def task_ids(self) -> tuple[str, ...]:
        """All ids, in file order."""
        return tuple(task.task_id for task in self.tasks)

    @cached_property
    def _by_id(self) -> dict[str, Task]:
        return {task.task_id: task for task in self.tasks}

    def find(self, task_id: str) -> Task:
        """The task with this id.

        Raises:
            UnknownTaskError: no task of the split has it.
        """
        task = self._by_id.get(task_id)
        if task is None:
            near = did_you_mean(task_id, self.task_ids) if len(self) <= _SUGGEST_UP_TO else ""
            raise UnknownTaskError(
                f"task_id={task_id!r} is not among the {len(self)} tasks of {self.name}/{self.split} "
                f"({self.source}), which run from {self.task_ids[0]!r} to {self.task_ids[-1]!r}.{near}"
            )
        return task

    def where(self, keep: Callable[[Task], bool], because: str) -> "TaskSet":
        """The tasks that `keep` accepts.

        Raises:
            SettingError: none is left; the message ends with `because`.
        """
        kept = tuple(task for task in self.tasks if keep(task))
        if not kept:
            raise SettingError(f"No task of {self.name}/{self.split} ({self.source}) is left: {because}.")
        return TaskSet(self.name, self.split, kept, self.source, self.corpus, self.skipped_rows)

    def __deepcopy__(self, memo: object) -> "TaskSet":
        return self  # it never changes, so copies of an environment share it

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[index]


def count_empty_gold(tasks: Iterable[Task], normalise: Callable[[str], str]) -> int:
    """How many tasks have a gold answer that `normalise` turns into the empty string; they stay valid items."""
    return sum(1 for task in tasks if not any(normalise(answer) for answer in task.answers))
