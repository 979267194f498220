"""What a run writes down while it goes on: ``events.jsonl``, TensorBoard, W&B, rollouts in parquet, a progress line.

``events.jsonl`` is the only source of truth: one JSON object a line, ``{"kind", "step", <metric>: number, ...}``,
flushed line by line. Names are those of ``metrics.METRICS``; only those under ``time/`` differ between a run and its
exact resumption. Rollout files appear whole or not at all, so another process may read both while the run goes on.

Nothing here decides what is logged. Only rank 0 makes a ``Tracker``.
"""

import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agentr1_train.config import TrackingConfig
from agentr1_train.errors import CheckpointError, ConfigError, MissingFileError
from agentr1_train.folding import fold, unfold
from agentr1_train.trajectory import Step, Trajectory

EVENTS_FILE = "events.jsonl"

SHOWN = {
    "rollout/success": "success",
    "rollout/return_mean": "return",
    "eval/success": "eval success",
    "policy/kl_old": "kl",
    "policy/grad_norm": "grad",
    "supervised/loss": "loss",
}
"""Metrics that the progress line shows, and how it calls them."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point in ``events.jsonl`` that a checkpoint remembers and a resumed run goes back to."""

    offset: int
    """Bytes of the file that belong to the checkpoint."""
    step: int
    """Updates done."""


class Tracker:
    """Writes the events of one run; a context manager.

    Args:
        run_dir: the run folder; made if it is not there.
        config: the recipe's ``[tracking]``.
        total: updates of the run, for the progress bar.
        recipe: nested tables, handed to W&B.
        resume: where a checkpoint left off; everything after it is cut away.

    Raises:
        ConfigError: ``run_dir`` already holds events and ``resume`` is not given; W&B is asked for and not installed.
        CheckpointError: the events end before ``resume``, or inside a line there.
    """

    def __init__(
        self,
        run_dir: Path,
        config: TrackingConfig,
        *,
        total: int,
        recipe: Mapping[str, Any] | None = None,
        resume: Mark | None = None,
    ) -> None:
        path = run_dir / EVENTS_FILE
        if resume is not None:
            truncate_events(path, resume.offset)
        elif path.exists() and path.stat().st_size:
            raise ConfigError(f"{path} already holds a run. Resume it, or set another run_dir.")
        done = resume.step if resume else 0
        self._wandb = _open_wandb(run_dir, config.wandb_project, recipe or {}) if config.wandb_project else None
        run_dir.mkdir(parents=True, exist_ok=True)
        self._tensorboard = _open_tensorboard(run_dir, done) if config.tensorboard else None
        self._events = path.open("ab")
        self._display = _Display(total, done) if config.progress else None
        self._opened = time.monotonic()

    def log(self, kind: str, step: int, metrics: Mapping[str, Any]) -> None:
        """Write one event everywhere.

        Args:
            kind: ``supervised``, ``update``, ``evaluation`` ...
            step: updates done when it happened, or batches done for ``supervised``.
            metrics: numbers (a tensor or array of one element is read), texts or bools. A number that is not finite is
                written as null, which JSON has, and not as NaN, which it has not.
        """
        numbers = {name: _plain(value) for name, value in metrics.items()}
        numbers["time/elapsed"] = round(time.monotonic() - self._opened, 3)
        line = json.dumps({"kind": kind, "step": step, **numbers}, ensure_ascii=False, allow_nan=False)
        self._events.write(line.encode() + b"\n")
        self._events.flush()
        scalars = {name: value for name, value in numbers.items() if isinstance(value, int | float)}
        if self._tensorboard is not None:
            for name, value in scalars.items():
                self._tensorboard.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log({**scalars, "step": step})
        if self._display is not None:
            self._display.show(kind, step, scalars)

    def mark(self, step: int) -> Mark:
        """Return the present end of the events, for a checkpoint taken after ``step`` updates."""
        return Mark(self._events.tell(), step)

    def close(self) -> None:
        """Flush and close everything; a second call does nothing."""
        if self._events.closed:
            return
        if self._display is not None:
            self._display.close()
        self._events.close()
        if self._tensorboard is not None:
            self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def read_events(path: Path) -> list[dict[str, Any]]:
    """Read ``events.jsonl``; a last line without its newline (a run in progress, or killed) is left out.

    Raises:
        MissingFileError: there is no such file.
        ValueError: a whole line is not JSON.
    """
    if not path.is_file():
        raise MissingFileError(f"no events at {path}. A run writes them into its run_dir.")
    events = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            events.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is not JSON: {error}") from error
    return events


def truncate_events(path: Path, offset: int) -> None:
    """Cut ``events.jsonl`` back to its first ``offset`` bytes.

    Raises:
        CheckpointError: the file is shorter, or a line does not end there.
    """
    size = path.stat().st_size if path.is_file() else 0
    if size < offset:
        raise CheckpointError(
            f"{path} has {size} bytes, the checkpoint was taken at {offset}: it is another run's file."
        )
    if size == offset:
        return
    with path.open("r+b") as file:
        if offset:
            file.seek(offset - 1)
            if file.read(1) != b"\n":
                raise CheckpointError(f"{path} has no line that ends at byte {offset}: it is another run's file.")
        file.truncate(offset)


def rollout_path(run_dir: Path, update: int) -> Path:
    """Return where the rollout of an update is written."""
    return run_dir / "rollouts" / f"step_{update:06d}.parquet"


_NUMBERS = pa.map_(pa.string(), pa.float64())
_IDS = pa.list_(pa.int32())

ROLLOUT_SCHEMA = pa.schema(
    [
        ("group", pa.int32()),
        ("member", pa.int32()),
        ("step", pa.int32()),  # null: a trajectory that failed before its first step
        ("env_id", pa.string()),
        ("task_id", pa.string()),
        ("seed", pa.int64()),
        ("origin", pa.int32()),  # the member it branched off; null: none
        ("shared_steps", pa.int32()),  # its first steps that are also those of the origin
        ("prompt_base", pa.int32()),  # as ``folding.fold`` says, with the two below
        ("prompt_shared", pa.int32()),
        ("prompt_rest", _IDS),
        ("response_ids", _IDS),
        ("response_logprobs", pa.list_(pa.float64())),
        ("observation", pa.string()),
        ("action", pa.string()),
        ("reward", pa.float64()),
        ("advantage", pa.float64()),  # null: not trained
        ("terminated", pa.bool_()),
        ("truncated", pa.bool_()),
        ("finish_reason", pa.string()),
        ("state_key", pa.string()),
        ("reward_parts", _NUMBERS),
        ("policy_version", pa.int32()),
        ("sample_s", pa.float64()),
        ("env_s", pa.float64()),
        ("success", pa.bool_()),
        ("end_reason", pa.string()),
        ("error", pa.string()),
        ("final_observation", pa.string()),  # on the last row of a trajectory, as what follows
        ("final_prompt_shared", pa.int32()),
        ("final_prompt_rest", _IDS),
        ("metrics", _NUMBERS),
    ]
)
"""One row a step; what belongs to the whole trajectory is repeated on each of its rows, ids that repeat are not."""

_STEP_COLUMNS = tuple(Step.__dataclass_fields__)
_LAST_ROW_COLUMNS = ("final_observation", "final_prompt_ids", "metrics")
_TRAJECTORY_COLUMNS = tuple(
    name for name in Trajectory.__dataclass_fields__ if name != "steps" and name not in _LAST_ROW_COLUMNS
)


def write_rollouts(
    path: Path,
    trajectories: Sequence[Trajectory],
    advantages: Mapping[tuple[int, int], Sequence[float]] | None = None,
) -> None:
    """Write trajectories, one row a step, under a temporary name that becomes ``path`` when it is complete.

    Args:
        path: the file; its folder is made.
        trajectories: in the order of the file.
        advantages: (group, member) -> one float a step; the trajectories that were trained.
    """
    rows = [row for item in trajectories for row in _rows(item, (advantages or {}).get((item.group, item.member)))]
    rows = [row | columns for row, columns in zip(rows, fold(rows), strict=True)]
    columns = {name: [row.get(name) for row in rows] for name in ROLLOUT_SCHEMA.names}
    table = pa.table(columns, schema=ROLLOUT_SCHEMA)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pq.write_table(table, temporary, compression="zstd")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_rollouts(path: Path) -> list[Trajectory]:
    """Read the trajectories of a rollout file, equal to those that were written.

    Raises:
        MissingFileError: there is no such file.
        ConfigError: it is not a rollout file; the message names the missing columns.
    """
    if not path.is_file():
        raise MissingFileError(f"no rollouts at {path}. A run writes them under RUN_DIR/rollouts/.")
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise ConfigError(f"{path} is not a parquet file: {error}") from error
    missing = [name for name in ROLLOUT_SCHEMA.names if name not in table.column_names]
    if missing:
        raise ConfigError(f"{path} is not a rollout file: it lacks the columns {', '.join(missing)}.")
    rows = table.select(ROLLOUT_SCHEMA.names).to_pylist(maps_as_pydicts="strict")
    unfold(rows)
    trajectories: list[list[dict[str, Any]]] = []
    for row in rows:
        if not row["step"]:  # the first, or none at all
            trajectories.append([])
        trajectories[-1].append(row)
    return [_trajectory(found) for found in trajectories]


def _rows(item: Trajectory, advantages: Sequence[float] | None) -> Iterator[dict[str, Any]]:
    whole = {name: getattr(item, name) for name in _TRAJECTORY_COLUMNS}
    last = {name: getattr(item, name) for name in _LAST_ROW_COLUMNS} | {"metrics": _pairs(item.metrics)}
    if not item.steps:
        yield whole | last
    for index, step in enumerate(item.steps):
        row = whole | {name: getattr(step, name) for name in _STEP_COLUMNS}
        row |= {"step": index, "reward_parts": _pairs(step.reward_parts)}
        if advantages is not None:
            row["advantage"] = advantages[index]
        yield row | last if index == len(item.steps) - 1 else row


def _trajectory(rows: list[dict[str, Any]]) -> Trajectory:
    steps = tuple(
        Step(**{name: _record(row[name]) for name in _STEP_COLUMNS}) for row in rows if row["step"] is not None
    )
    whole = {name: rows[-1][name] for name in _TRAJECTORY_COLUMNS}
    return Trajectory(steps=steps, **whole, **{name: _record(rows[-1][name]) for name in _LAST_ROW_COLUMNS})


def _pairs(numbers: Mapping[str, float]) -> list[tuple[str, float]]:
    return list(numbers.items())


def _record(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _plain(value: Any) -> bool | int | float | str | None:
    """Return what JSON can say: a number that is not finite becomes ``None``."""
    if isinstance(value, bool | int | str | None):
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def _open_tensorboard(run_dir: Path, done: int) -> Any:
    from torch.utils.tensorboard import SummaryWriter  # seconds to import, and not every run wants it

    return SummaryWriter(str(run_dir / "tensorboard"), purge_step=done + 1 if done else None)


def _open_wandb(run_dir: Path, project: str, recipe: Mapping[str, Any]) -> Any:
    """Start a W&B run, or go on with the one whose id lies in the run folder."""
    try:
        import wandb  # an extra  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ConfigError(
            "tracking.wandb_project is set and wandb is not installed. Install it with "
            "`pip install 'agentr1-train[wandb]'`, or leave the project empty."
        ) from error
    run_dir.mkdir(parents=True, exist_ok=True)
    id_file = run_dir / "wandb_id"
    known = id_file.read_text("utf-8") if id_file.is_file() else None
    run = wandb.init(project=project, dir=str(run_dir), config=dict(recipe), id=known, resume="allow")
    run.define_metric("*", step_metric="step")
    id_file.write_text(run.id, "utf-8")
    return run


class _Display:
    """The progress of a run: a bar on a terminal, one line an event elsewhere."""

    def __init__(self, total: int, done: int) -> None:
        self._console = Console(file=sys.stdout, highlight=False)
        self._bar = None
        self._started, self._total = False, total
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("update"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[shown]}"),
                console=self._console,
            )
            self._task = self._bar.add_task("update", total=total, completed=done, shown="")

    def show(self, kind: str, step: int, scalars: Mapping[str, float]) -> None:
        shown = "  ".join(f"{label} {scalars[name]:.3g}" for name, label in SHOWN.items() if name in scalars)
        if self._bar is None:
            of = f"/{self._total}" if kind == "update" else ""
            self._console.print(f"{kind} {step}{of}  {shown}", soft_wrap=True, markup=False)
            return
        if not self._started:
            self._bar.start()
            self._started = True
        if kind == "update":
            self._bar.update(self._task, completed=step, shown=shown)
        else:
            self._bar.console.print(f"{kind} {step}  {shown}", markup=False)

    def close(self) -> None:
        if self._bar is not None and self._started:
            self._bar.stop()
