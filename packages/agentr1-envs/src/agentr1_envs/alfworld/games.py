"""The games as tasks: packed files, the official tree, the bundled sample.

A packed file (``<split>.jsonl`` or ``.jsonl.xz``) has one game a line and ``logic.json`` beside it; the official tree
has ``game.tw-pddl`` and ``traj_data.json`` in ``<split>/<task>/<trial>``. Games are listed by task id. Problem texts
are kept compressed, since the training games are 200 MB of text.
"""

import json
import lzma
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from agentr1_envs.alfworld.game import GameFile
from agentr1_envs.alfworld.grammar import GOAL
from agentr1_envs.alfworld.sample.bundled import BUNDLED_SPLITS, bundled_rows, household_logic
from agentr1_envs.errors import DataNotFoundError, DataRowError, SettingError, require_choice
from agentr1_envs.loader import BUNDLED, ENVIRONMENT_VARIABLE, ON_BAD_ROW, OnBadRow, user_folder
from agentr1_envs.once import OncePerProcess
from agentr1_envs.rows import Row
from agentr1_envs.tasks import Task, TaskSet

NAME = "alfworld"
SPLITS = ("train", "valid_seen", "valid_unseen", "valid_train")
TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
OFFICIAL_VARIABLE = "ALFWORLD_DATA"
"""Names the folder that the original project downloads to."""

_TREE = "json_2.1.1"
_LOGIC = "logic.json"
_PACKED = (".jsonl.xz", ".jsonl")
_TASK_LINE = re.compile(r'(Your task is to: )((?:[^"\\]|\\.)*)(\.")')
_LOADED = OncePerProcess[TaskSet](kept=8)


@dataclass(frozen=True, slots=True)
class Logic:
    """Domain and grammar, the same text for many games."""

    domain: str
    grammar: str


@dataclass(frozen=True, slots=True)
class GameTask(Task):
    """One game; `question` is its template goal, `plan` its walkthrough, `kind` its task type."""

    logic: Logic = Logic("", "")
    packed: bytes = b""
    """The problem text, compressed."""
    human_goals: tuple[str, ...] = ()
    """What people wrote for the same goal."""
    source: str = ""
    """Where the game stands: a path, and a line where there is one."""

    def file(self, goal: str) -> GameFile:
        """The game's file with this goal."""
        problem = zlib.decompress(self.packed).decode()
        name = f"{self.task_id} ({self.source})"
        return GameFile(name, self.logic.domain, self.logic.grammar, problem, goal)


def load_games(split: str, data: str | os.PathLike[str] | None = None, on_bad_row: OnBadRow = "refuse") -> TaskSet:
    """The games of a split, from the first place that has them; read once a process.

    Raises:
        DataNotFoundError: nothing at the named place. DataRowError: a broken or unsolvable game, under "refuse".
    """
    require_choice("on_bad_row", on_bad_row, ON_BAD_ROW)
    place = find_games(split, data)
    if place is None:
        return _LOADED.get((split, BUNDLED), lambda: _bundled(split))
    status = place.stat()
    key = (split, place, on_bad_row, status.st_mtime_ns, status.st_size)
    return _LOADED.get(key, lambda: _load(split, place, on_bad_row))


def find_games(split: str, data: str | os.PathLike[str] | None) -> Path | None:
    """The packed file or the folder of a split; None means the bundled sample.

    In this order: `data`, AGENTR1_DATA, the user's data folder, ALFWORLD_DATA.

    Raises:
        DataNotFoundError: a named place does not hold the split.
    """
    require_choice("split", split, SPLITS)
    if data is not None:
        if str(data) == BUNDLED:
            return None
        place = Path(data).expanduser()
        if place.is_file():
            return place.resolve()
        return _in_folder(split, place) or _missing(split, place, f"data={str(data)!r}")
    if configured := os.environ.get(ENVIRONMENT_VARIABLE):
        place = Path(configured).expanduser()
        if not place.is_dir():
            _missing(split, place, f"{ENVIRONMENT_VARIABLE}={configured!r}")
        if (place / NAME).is_dir():
            return _in_folder(split, place) or _missing(split, place / NAME, f"{ENVIRONMENT_VARIABLE}={configured!r}")
    if found := _in_folder(split, user_folder()):
        return found
    official = os.environ.get(OFFICIAL_VARIABLE)
    return _in_folder(split, Path(official).expanduser()) if official else None


def make_task(row: Row, split: str, logic: Logic) -> GameTask:
    """The task of one row.

    Raises:
        DataRowError: a field is missing or mistyped, or the game is marked as unsolvable.
    """
    task_id = row.text("id")
    if row.fields.get("solvable") is False:
        raise row.error("solvable", f"game {task_id!r} is marked as unsolvable.")
    kind = row.text("task_type")
    if kind not in TASK_TYPES:
        raise row.error("task_type", f"game {task_id!r}: {kind!r} is none of {', '.join(TASK_TYPES)}.")
    return GameTask(
        task_id=task_id,
        split=split,
        question=row.text("goal"),
        answers=(),
        plan=tuple(map(str, row.items("walkthrough"))),
        kind=kind,
        logic=logic,
        packed=zlib.compress(row.text("pddl_problem").encode(), 1),
        human_goals=tuple(map(str, row.items("human_goals"))),
        source=f"{row.path}, line {row.line}" if row.path.suffix in (".xz", ".jsonl") else str(row.path),
    )


def task_set(
    split: str, rows: Iterator[tuple[Row | DataRowError, Logic]], source: str, on_bad_row: OnBadRow
) -> TaskSet:
    """The games of these rows, by task id.

    Raises:
        DataRowError: a bad row, under "refuse". SettingError: no game is left.
    """
    tasks: dict[str, GameTask] = {}
    skipped: list[str] = []
    for row, logic in rows:
        try:
            if isinstance(row, DataRowError):
                raise row
            task = make_task(row, split, logic)
            if task.task_id in tasks:
                raise row.error("id", f"{task.task_id!r} stands there twice.")
            tasks[task.task_id] = task
        except DataRowError as error:
            if on_bad_row == "refuse":
                raise
            skipped.append(str(error))
    if not tasks:
        raise SettingError(f"{source} holds no game of split {split!r}.")
    listed = tuple(tasks[task_id] for task_id in sorted(tasks))
    return TaskSet(NAME, split, listed, source, skipped_rows=tuple(skipped))


def _load(split: str, place: Path, on_bad_row: OnBadRow) -> TaskSet:
    rows = _tree_rows(place, split) if place.is_dir() else _packed_rows(place)
    return task_set(split, rows, str(place), on_bad_row)


def _bundled(split: str) -> TaskSet:
    if split not in BUNDLED_SPLITS:
        raise DataNotFoundError(
            f"The bundled games have no split {split!r}; they have {', '.join(BUNDLED_SPLITS)}. data=PATH has others."
        )
    domain, grammar = household_logic()
    logic, path = Logic(domain, grammar), Path(f"{BUNDLED} sample")
    rows = ((Row(path, number, fields), logic) for number, fields in bundled_rows(split))
    return task_set(split, rows, str(path), "refuse")


def _packed_rows(path: Path) -> Iterator[tuple[Row | DataRowError, Logic]]:
    logic = _read_logic(path.parent / _LOGIC)
    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _object(path, number, line), logic


def _tree_rows(folder: Path, split: str) -> Iterator[tuple[Row | DataRowError, Logic]]:
    shared: dict[Logic, Logic] = {}
    for path in sorted(folder.glob("*/*/game.tw-pddl")):
        task_folder = path.parent.parent.name
        if "movable" in task_folder or "Sliced" in task_folder:
            continue  # the original project does not play these either
        game = _object(path, 1, path.read_text())
        annotations = path.parent / "traj_data.json"
        people = _object(annotations, 1, annotations.read_text()) if annotations.is_file() else None
        if isinstance(game, DataRowError):
            yield game, Logic("", "")
            continue
        anns = people.section("turk_annotations").items("anns") if isinstance(people, Row) else []
        fields = {
            "id": f"{split}/{task_folder}/{path.parent.name}",
            "task_type": task_folder.split("-")[0],
            "human_goals": [ann["task_desc"] for ann in anns],
            **game.fields,
        }
        grammar = str(fields.get("grammar", ""))
        if found := _TASK_LINE.search(grammar):
            fields.setdefault("goal", json.loads(f'"{found.group(2)}"'))
            grammar = f"{grammar[: found.start(2)]}{GOAL}{grammar[found.end(2) :]}"
        logic = Logic(str(fields.get("pddl_domain", "")), grammar)
        yield Row(path, 1, fields), shared.setdefault(logic, logic)


def _object(path: Path, number: int, text: str) -> Row | DataRowError:
    try:
        fields: Any = json.loads(text)
    except json.JSONDecodeError as error:
        return DataRowError(path, number, "(whole line)", f"is no JSON: {error}")
    if not isinstance(fields, dict):
        return DataRowError(path, number, "(whole line)", "needs an object.")
    return Row(path, number, cast("dict[str, Any]", fields))


def _read_logic(path: Path) -> Logic:
    if not path.is_file():
        raise DataNotFoundError(f"{path} does not exist; packed games need it beside them (pddl_domain and grammar).")
    row = _object(path, 1, path.read_text())
    if isinstance(row, DataRowError):
        raise row
    return Logic(row.text("pddl_domain"), row.text("grammar"))


def _in_folder(split: str, folder: Path) -> Path | None:
    for place in (folder / NAME, folder):
        for suffix in _PACKED:
            if (place / f"{split}{suffix}").is_file():
                return (place / f"{split}{suffix}").resolve()
        for tree in (place / _TREE / split, place / split):
            if tree.is_dir():
                return tree.resolve()
    return None


def _missing(split: str, place: Path, given: str) -> Path:
    what = f"holds no games of {NAME}/{split}" if place.is_dir() else "does not exist"
    raise DataNotFoundError(
        f"{given}: {place.absolute()} {what} (looked for {split}.jsonl, {split}.jsonl.xz and the official folder "
        f"{_TREE}/{split}). `agentr1-envs generate alfworld --out {place}` writes games; data='{BUNDLED}' plays the "
        "bundled ones."
    )
