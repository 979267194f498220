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
from agentr1_envs.signatures import EPISODE, takes
from agentr1_envs.tasks import Task, TaskSet
from agentr1_envs.tool_env import ToolEnv, ToolSpec
from agentr1_envs.tool_settings import ToolSettings

SCORERS = ("em", "f1", "number")

Questions = str | os.PathLike[str] | Sequence[Mapping[str, Any]]


@takes(ToolSettings, **EPISODE)
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
    The general `ToolEnv` as an id: name the tools and bring the questions. A response with calls runs them and shows
    their results; a response without is the answer. Without questions it plays the bundled word problems with the
    calculator.

    ## Action Space
    `Text`: the model's whole response, calls written in `format`, the answer in ``<answer>``.

    ## Observation Space
    `Text`: the question, then the results of the calls; with ``observation="messages"`` `Messages`: the whole
    conversation, of which the last `history` steps are kept.

    ## Rewards
    The scorer's value of the answer, in ``reward/task``. ``reward/env`` is what calls and hops pay, ``reward/format``
    what form pays or costs; both are 0 unless `ToolSettings` sets them. The step's reward is the sum.

    ## Starting State
    A question, drawn by the seed or named by ``options={"task_id": ...}``.

    ## Episode End
    Terminated by the answer (`end_reason` "answer"), or by `max_invalid` steps in a row with invalid calls only
    ("max_invalid"); truncated after `max_steps` ("max_steps").

    ## Info
    * `success` (bool): whether the answer was right.
    * `task_id` (str): the question.
    * `end_reason` (str): why the episode is over; empty while it goes on.
    * `steps` (int): responses so far.
    * `reward/task`, `reward/env`, `reward/format` (float): the parts of this step's reward.
    * `em`, `f1`, `precision`, `recall` (float): the answer's scores as a text; 0 until there is one.
    * `gsm8k_official`, `gsm8k_lenient` (float): its scores as a number, with scorer "number"; else 0.
    * `prediction` (str): the answer as it was read.
    * `tool_calls`, `tool_errors` (int): calls so far, and how many of them failed.
    * `injected_errors` (int): how many of those failed on purpose, by `inject_errors`.
    * `invalid_calls`, `invalid_steps` (int): calls that were written wrongly, and steps that had no other call.
    * `error_codes` (tuple of str): what went wrong in the last response.
    * `hops_found` (int): titles of the question's `supporting_facts` that a result has shown.

    ## Arguments
    * `tools`: names from `agentr1-tools list`, ``{"name": ..., **config}``, or `BaseTool`s.
    * `tasks`: a jsonl, json or parquet file, or a list, of ``{"question", "answer"}`` rows; optional fields are `id`,
      `answers`, `plan` (arguments for the scripted expert's calls) and `supporting_facts`.
    * `scorer`: "em" (exact match after HotpotQA's normalisation), "f1", or "number" (equal as numbers).
    * `split`: which rows of a file that has a `split` field; of the bundled problems "train" or "test".
    * `on_bad_row`: "refuse" a file with rows that cannot be read, or "skip" them.
    * `observation`: "text" (what is new) or "messages" (the whole conversation).
    * `history`: with "messages", how many past steps stay in the conversation; None keeps all.
    * `render_mode`: None, or "ansi": `render` returns the transcript.
    * `format`, `system`, `tools_in_template`, `max_steps`, `max_calls_per_step`, `tool_timeout`,
      `tool_seconds_per_episode`, `max_invalid`, `max_result_chars`, `process_reward`, `process_reward_range`,
      `progressive`, `per_hop`, `format_reward`, `invalid_penalty`, `inject_errors`: fields of `ToolSettings`.

    ## Example
    ```python
    import gymnasium

    rows = [{"question": "What is 12 feet in inches?", "answer": "144"}]
    env = gymnasium.make("agentr1_envs:agentr1/ToolEnv-v0", tools=["calculator"], tasks=rows, scorer="number")
    question, info = env.reset(seed=0)
    call = '<tool_call>{"name": "calculator", "arguments": {"expression": "12 * 12"}}</tool_call>'
    result, *_ = env.step(call)
    _, reward, terminated, truncated, info = env.step("<answer>144</answer>")
    assert "144" in result and reward == 1.0 and info["success"]
    ```

    ## References
    The rules of exact match and F1 are HotpotQA's ([arXiv:1809.09600](https://arxiv.org/abs/1809.09600)).

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
