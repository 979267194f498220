"""The questions of PaperSearch with the papers they are about: which file, which papers may be found, which count."""

import os

from agentr1_envs.corpus import check_corpus_path
from agentr1_envs.datasets import PAPERS
from agentr1_envs.errors import DataNotFoundError, require_choice
from agentr1_envs.loader import OnBadRow, find_file, load_tasks
from agentr1_envs.paper_data import PaperTask
from agentr1_envs.tasks import Task, TaskSet
from agentr1_envs.tool_env import Encoder, Paper, PaperIndex, is_later, letters


class Library:
    """Loads the questions when first called, and their papers; a named place that is not there is told at once."""

    def __init__(
        self,
        split: str,
        data: str | os.PathLike[str] | None,
        corpus: str | os.PathLike[str] | None,
        kind: str | None,
        on_bad_row: OnBadRow,
        encoder: Encoder | None,
    ) -> None:
        require_choice("split", split, PAPERS.splits)
        find_file(PAPERS, split, data)
        self._corpus = None if corpus is None else str(check_corpus_path(corpus))
        self._split, self._data, self._kind = split, data, kind
        self._on_bad_row: OnBadRow = on_bad_row
        self.encoder = encoder

    def __call__(self) -> TaskSet:
        tasks = load_tasks(PAPERS, self._split, self._data, self._on_bad_row)
        if self._kind is None:
            return tasks
        kinds = sorted({task.kind for task in tasks})
        return tasks.where(lambda task: task.kind == self._kind, f"kind={self._kind!r}; there are {kinds}")

    def corpus_path(self) -> str:
        """The corpus given, or the one beside the data.

        Raises:
            DataNotFoundError: there is none.
        """
        tasks = load_tasks(PAPERS, self._split, self._data, self._on_bad_row)
        if not (path := self._corpus or tasks.corpus):
            raise DataNotFoundError(
                f"{tasks.source} has no corpus.jsonl beside it. Pass corpus=PATH, a jsonl file of "
                '{"id", "title", "abstract", "references"} lines.'
            )
        return path

    def index(self) -> PaperIndex:
        """The papers, opened once a process."""
        return PaperIndex.load(self.corpus_path(), self.encoder)

    def gold(self, task: PaperTask) -> frozenset[str]:
        """Keys of the papers that count for a question: the wanted ones, but for those after its date.

        Raises:
            DataNotFoundError: the library lacks an id.
        """
        index = self.index()
        found = {paper_id: index.find(paper_id) for paper_id in task.gold}
        if missing := [paper_id for paper_id, paper in found.items() if paper is None]:
            raise DataNotFoundError(f"Task {task.task_id!r}: {self.corpus_path()} lacks the papers {missing}.")
        named = ((letters(title), index.by_title(title)) for title in task.gold_titles)
        keys = [letters(paper.title) for paper in found.values() if paper is not None and is_open(task, paper)]
        return frozenset([*keys, *(key for key, paper in named if paper is None or is_open(task, paper))])


def is_open(task: PaperTask, paper: Paper) -> bool:
    """True for a paper that a question may find: it is not hidden, and not after the question's date."""
    hidden = paper.id in task.hidden or letters(paper.title) in map(letters, task.hidden_titles)
    return not hidden and not (task.cutoff and is_later(paper.date, task.cutoff))


def paper_task(task: Task) -> PaperTask:
    assert isinstance(task, PaperTask), "the loader of PaperSearch reads PaperTask"
    return task
