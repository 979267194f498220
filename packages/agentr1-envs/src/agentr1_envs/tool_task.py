"""`agentr1/ToolEnv-v0`: any tools on any questions, with a scorer by name."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from agentr1_envs.agent_env import InfoValue
from agentr1_envs.datasets import GSM8K, HOTPOTQA
from agentr1_envs.errors import DataNotFoundError, SettingError, require_choice
from agentr1_envs.loader import OnBadRow, load_tasks, read_tasks
from agentr1_envs.rows import Row
from agentr1_envs.scoring import NUMBER_SCORES, Score, score_number, score_text
from agentr1_envs.tasks import Task, TaskSet
from agentr1_envs.tool_env import ToolEnv, ToolSpec

SCORERS = ("em", "f1", "number")

Questions = str | os.PathLike[str] | Sequence[Mapping[str, Any]]


def tool_task(
    tools: Sequence[ToolSpec] = ("calculator",),
    tasks: Questions | None = None,
    *,
    scorer: str = "em",
    split: str = "train",
    on_bad_row: OnBadRow = "refuse",
    **settings: Any,
) -> ToolEnv:
    """Any tools on any questions with short answers.

    ## Description
    The general `ToolEnv` as an id: name the tools and bring the questions. Without questions it plays the bundled
    word problems with the calculator.

    ## Action Space
    `Text`: the model's whole response, calls written in `format`, the answer in ``<answer>``.

    ## Observation Space
    `Text`: the question, then the results of the calls; `Messages` with ``observation="messages"``.

    ## Rewards
    The scorer's value in ``reward/task``: "em" (exact match after HotpotQA's normalisation), "f1", or "number" (equal
    as numbers). What calls, hops and format pay is set by `ToolSettings`; nothing by default.

    ## Starting State
    A question, drawn by the seed or named by ``options={"task_id": ...}``.

    ## Episode End
    Terminated by the answer, or by `max_invalid` steps in a row with invalid calls only; truncated after `max_steps`.

    ## Arguments
    * `tools`: names from `agentr1-tools list`, ``{"name": ..., **config}``, or `BaseTool`s.
    * `tasks`: a jsonl, json or parquet file, or a list, of ``{"question", "answer"}`` rows; optional fields are `id`,
      `answers`, `plan` (arguments for the scripted expert's calls) and `supporting_facts`.
    * `scorer`: "em", "f1" or "number".
    * `split`: which rows of a file that has a `split` field; of the bundled problems "train" or "test".
    * `on_bad_row`: "refuse" or "skip".
    * `observation`, `history`, `render_mode`: as for `AgentEnv`; everything else is a field of `ToolSettings`.

    ## Version History
    v0: first version.
    """
    require_choice("scorer", scorer, SCORERS)
    if isinstance(tasks, str | os.PathLike) and not Path(tasks).expanduser().is_file():
        raise DataNotFoundError(
            f"tasks={str(tasks)!r}: there is no file {Path(tasks).absolute()}. Give a jsonl, json or parquet file of "
            '{"question", "answer"} rows, or a list of such rows.'
        )
    return ToolTaskEnv(scorer, tools, lambda: _load(tasks, split, on_bad_row), **settings)


class ToolTaskEnv(ToolEnv):
    """Any tools on any questions; see `tool_task`."""

    extra_info: ClassVar[Mapping[str, InfoValue]] = {**ToolEnv.extra_info, **NUMBER_SCORES}

    def __init__(self, scorer: str, tools: Sequence[ToolSpec], tasks: Any, **settings: Any) -> None:
        super().__init__(tools, tasks, **settings)
        self._scorer = scorer

    def score(self, task: Task, response: str, prediction: str | None) -> Score:
        """The scorer that was named; the text scores are reported with each."""
        text = score_text(task, response if prediction is None else prediction, "f1" if self._scorer == "f1" else "em")
        if self._scorer != "number":
            return text
        number = score_number(task, response, prediction)
        return replace(number, info={**text.info, **number.info})


def _load(tasks: Questions | None, split: str, on_bad_row: OnBadRow) -> TaskSet:
    if tasks is None:
        return load_tasks(GSM8K, split, "bundled")
    if isinstance(tasks, str | os.PathLike):
        path = Path(tasks).expanduser().resolve()
        found, skipped = read_tasks(HOTPOTQA, split, path, on_bad_row)
        return TaskSet("questions", split, tuple(found), str(path), skipped_rows=tuple(skipped))
    if not tasks:
        raise SettingError("tasks=[]: needs at least one row.")
    rows = [Row(Path("tasks"), number, dict(fields)) for number, fields in enumerate(tasks, start=1)]
    return TaskSet("questions", split, tuple(HOTPOTQA.read(row, split) for row in rows), "the tasks given")
