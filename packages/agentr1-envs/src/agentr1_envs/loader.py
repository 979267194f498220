"""Where the tasks of an environment come from, and reading them.

In this order: the `data=` argument, the folder in AGENTR1_DATA, the user's data folder, the bundled sample. A file is
read whole or not at all: bad rows are refused by default, or left out and listed by choice. What has been read is kept
once a process and shared by its environments.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentr1_envs.errors import DataNotFoundError, DataRowError, SettingError, require_choice
from agentr1_envs.once import OncePerProcess
from agentr1_envs.rows import SUFFIXES, Row, read_rows
from agentr1_envs.tasks import Task, TaskSet

OnBadRow = Literal["refuse", "skip"]
ON_BAD_ROW: tuple[OnBadRow, ...] = ("refuse", "skip")
BUNDLED = "bundled"
CORPUS_NAME = "corpus.jsonl"
ENVIRONMENT_VARIABLE = "AGENTR1_DATA"

_MOST_SHOWN = 5
_LOADED = OncePerProcess[TaskSet](kept=32)


@dataclass(frozen=True, slots=True)
class HubFiles:
    """Where the official files lie on the Hugging Face hub."""

    repository: str
    files: tuple[tuple[str, str], ...]
    """(split, pattern of its parquet files in the repository)."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """What the loader must know of one task's data."""

    name: str
    """Name of its folder and of the `prepare` and `download` commands."""
    env_id: str
    splits: tuple[str, ...]
    read: Callable[[Row, str], Task]
    """Turns a row of a split into a task; raises DataRowError."""
    bundled: Callable[[str], tuple[tuple[Task, ...], str]]
    """The bundled tasks of a split, and the path of their corpus (empty without one)."""
    official: tuple[tuple[str, str], ...]
    """(split, name) of official files that are found in a folder as they are."""
    hub: HubFiles | None
    """None for data that is on no hub; its files are read as they are, never prepared."""
    ability: str
    """The `ability` column of a prepared file."""
    data_source: str
    """The `data_source` column of a prepared file."""
    further_splits: tuple[str, ...] = ()
    """Splits that only data of one's own can have, not the bundled sample."""


def user_folder() -> Path:
    """The user's data folder: ``$XDG_DATA_HOME/agentr1``, or ``~/.local/share/agentr1``."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "agentr1"


def load_tasks(
    dataset: Dataset, split: str, data: str | os.PathLike[str] | None = None, on_bad_row: OnBadRow = "refuse"
) -> TaskSet:
    """The tasks of a split, from the first place that has them.

    Args:
        dataset: what to load.
        split: one of ``dataset.splits``, or of ``dataset.further_splits`` where `data` names a place.
        data: a file, a folder, "bundled", or None for the usual order.
        on_bad_row: "refuse" a file with a bad row, or "skip" such rows and list them in the result.

    Raises:
        DataNotFoundError: nothing at the named place. DataRowError: a bad row. SettingError: an unknown setting.
    """
    require_choice("split", split, (*dataset.splits, *dataset.further_splits))
    require_choice("on_bad_row", on_bad_row, ON_BAD_ROW)
    path = find_file(dataset, split, data)
    if path is None:
        require_choice("split", split, dataset.splits)
        return _LOADED.get((dataset.name, split, BUNDLED), lambda: _bundled(dataset, split))
    status = path.stat()
    key = (dataset.name, split, path, on_bad_row, status.st_mtime_ns, status.st_size)
    return _LOADED.get(key, lambda: _load_file(dataset, split, path, on_bad_row))


def find_file(dataset: Dataset, split: str, data: str | os.PathLike[str] | None) -> Path | None:
    """The file that holds a split; None means the bundled sample.

    Raises:
        DataNotFoundError: `data` or AGENTR1_DATA names a place that does not hold it.
    """
    if data is not None and str(data) == BUNDLED:
        return None
    if data is not None:
        place = Path(data).expanduser()
        if place.is_file():
            return place.resolve()
        return in_folder(dataset, split, place) or _missing(dataset, split, place, f"data={str(data)!r}")
    if configured := os.environ.get(ENVIRONMENT_VARIABLE):
        place = Path(configured).expanduser()
        if not place.is_dir():
            _missing(dataset, split, place, f"{ENVIRONMENT_VARIABLE}={configured!r}")
        if (place / dataset.name).is_dir():
            found = in_folder(dataset, split, place / dataset.name)
            return found or _missing(dataset, split, place / dataset.name, f"{ENVIRONMENT_VARIABLE}={configured!r}")
    return in_folder(dataset, split, user_folder() / dataset.name)


def read_tasks(
    dataset: Dataset, split: str, path: Path, on_bad_row: OnBadRow = "refuse"
) -> tuple[list[Task], list[str]]:
    """The tasks of one file, and a line for each row that was skipped.

    Rows that carry another split are left alone. Nothing is returned unless every row was read or skipped.

    Raises:
        DataRowError: bad rows, under "refuse"; the first is named with the count. SettingError: no row is left.
    """
    tasks: list[Task] = []
    problems: list[DataRowError] = []
    others: set[str] = set()
    seen: dict[str, int] = {}
    for row in read_rows(path):
        try:
            if isinstance(row, DataRowError):
                raise row
            own_split = row.fields.get("split")
            if isinstance(own_split, str) and own_split and own_split != split:
                others.add(own_split)
                continue
            task = dataset.read(row, split)
            if task.task_id in seen:
                raise row.error("task_id", f"{task.task_id!r} stands on line {seen[task.task_id]} too.")
            seen[task.task_id] = row.line
            tasks.append(task)
        except DataRowError as error:
            problems.append(error)
    if problems and on_bad_row == "refuse":
        raise _refusal(problems)
    if not tasks:
        held = f"; its rows are of split {', '.join(map(repr, sorted(others)))}" if others else ""
        raise SettingError(f"{path} holds no task of split {split!r}{held}.")
    return tasks, [str(problem) for problem in problems]


def _bundled(dataset: Dataset, split: str) -> TaskSet:
    tasks, corpus = dataset.bundled(split)
    return TaskSet(dataset.name, split, tasks, "bundled sample", corpus)


def _load_file(dataset: Dataset, split: str, path: Path, on_bad_row: OnBadRow) -> TaskSet:
    tasks, skipped = read_tasks(dataset, split, path, on_bad_row)
    corpus = path.parent / CORPUS_NAME
    return TaskSet(
        dataset.name,
        split,
        tuple(tasks),
        str(path),
        str(corpus) if corpus.is_file() else "",
        tuple(skipped),
    )


def in_folder(dataset: Dataset, split: str, folder: Path) -> Path | None:
    """The file of a split in a folder, or in the folder of the dataset's name inside it; None without one."""
    names = [f"{split}{suffix}" for suffix in SUFFIXES]
    names += [name for of_split, name in dataset.official if of_split == split]
    for place in (folder / dataset.name, folder):
        for name in names:
            if (place / name).is_file():
                return (place / name).resolve()
    return None


def _missing(dataset: Dataset, split: str, place: Path, given: str) -> Path:
    what = f"holds no file of {dataset.name}/{split}" if place.is_dir() else "does not exist"
    looked_for = ", ".join(f"{split}{suffix}" for suffix in SUFFIXES)
    make_it = (
        f"Make it with `agentr1-envs download {dataset.name} --out {place}`, or from official files you have with "
        f"`agentr1-envs prepare {dataset.name} --source PATH --out {place}`"
        if dataset.hub
        else f"Bring a file of questions, and the {CORPUS_NAME} they are about beside it"
    )
    raise DataNotFoundError(
        f"{given}: {place.absolute()} {what} (looked for {looked_for} and the official names). {make_it}; "
        f"data='{BUNDLED}' plays the bundled sample."
    )


def _refusal(problems: list[DataRowError]) -> DataRowError:
    first = problems[0]
    if len(problems) == 1:
        return first
    shown = "\n  ".join(str(problem) for problem in problems[1:_MOST_SHOWN])
    more = f"\n  and {len(problems) - _MOST_SHOWN} more" if len(problems) > _MOST_SHOWN else ""
    return DataRowError(
        first.path,
        first.line,
        first.field,
        f"{first.problem} {len(problems)} rows are bad; on_bad_row='skip' leaves them out.\n  {shown}{more}",
    )
