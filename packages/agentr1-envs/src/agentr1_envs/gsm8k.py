"""GSM8K: grade-school word problems, answered at once, with a calculator, or with an oracle."""

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any, ClassVar

from agentr1_envs.agent_env import ANSWERED, AgentEnv, InfoValue, ObservationKind, Turn
from agentr1_envs.call_counts import CALL_INFO
from agentr1_envs.datasets import GSM8K
from agentr1_envs.errors import SettingError, refuse_unknown, require_choice
from agentr1_envs.loader import OnBadRow, find_file, load_tasks
from agentr1_envs.prompts import answer_system, check_style
from agentr1_envs.responses import answer_in_tag, without_thinking
from agentr1_envs.samples.word_problems import DEFAULT_MAX_NUMBER, DEFAULT_OPERATIONS, word_problems
from agentr1_envs.scorers import gsm8k_lenient
from agentr1_envs.scoring import NUMBER_SCORES, Score, score_number
from agentr1_envs.signatures import EPISODE, takes
from agentr1_envs.tasks import Task, TaskSet
from agentr1_envs.tool_env import EnvTool, ToolCall, ToolEnv
from agentr1_envs.tool_settings import ToolSettings

MODES = ("calculator", "single")

TOOL_TIMEOUT = 10.0
"""Seconds a calculation may take by default. The calculator bounds its own work, so this only fires when something is
broken; the tool's own 0.3 s would also fire on a busy machine, and the same seed would give another episode."""

_ANNOTATION = re.compile(r"<<[^<>]*>>")
_FINAL = re.compile(r"\n?#### .*\Z", re.DOTALL)


@takes(ToolSettings, tool_timeout=TOOL_TIMEOUT, **EPISODE)
def gsm8k(
    mode: str = "calculator",
    *,
    split: str = "train",
    data: str | os.PathLike[str] | None = None,
    on_bad_row: OnBadRow = "refuse",
    operations: int | Sequence[int] | None = None,
    max_number: int | None = None,
    hasty: float = 0.0,
    **settings: Any,
) -> AgentEnv:
    """Grade-school word problems, with a calculator or in one response.

    ## Description
    A word problem whose answer is a number. Without data of your own the problems are the bundled ones: 4,000 to
    train on and 400 to test on, written by this project's generator. ``agentr1-envs download gsm8k`` fetches the
    official 7,473 and 1,319.

    There are two modes: "calculator", a `ToolEnv` whose tool works out an expression, and "single", in which the first
    response is the answer.

    ## Action Space
    `Text`: the model's whole response. The answer stands in ``<answer>``; "#### 72" and ``\\boxed{72}`` are read too.
    In "calculator" a response with calls, written in `format`, runs them; one without is the answer.

    ## Observation Space
    `Text`: the problem, then the results of the calls; with ``observation="messages"`` `Messages`: the whole
    conversation, of which the last `history` steps are kept.

    ## Rewards
    1.0 for the right number (`gsm8k_lenient`), in ``reward/task``. In "calculator" ``reward/env`` is what calls pay by
    `process_reward` and ``reward/format`` what form pays or costs; both are 0 unless `ToolSettings` sets them. The
    step's reward is the sum.

    ## Starting State
    A problem of the split, drawn by the seed or named by ``options={"task_id": ...}``.

    ## Episode End
    Terminated by the answer (`end_reason` "answer"), or by `max_invalid` steps in a row with invalid calls only
    ("max_invalid"); truncated after `max_steps` ("max_steps").

    ## Info
    * `success` (bool): whether the answer was right.
    * `task_id` (str): the problem.
    * `end_reason` (str): why the episode is over; empty while it goes on.
    * `steps` (int): responses so far.
    * `reward/task` (float): what the answer paid; in "calculator" also `reward/env`, `reward/format` (float).
    * `gsm8k_official` (float): 1.0 when the answer is right by the original repository's rule, which reads "#### 72".
    * `gsm8k_lenient` (float): 1.0 when it is right wherever it stands; the last number counts where nothing marks one.
    * `prediction` (str): the answer as it was read.
    * `tool_calls`, `tool_errors` (int): in "calculator": calls so far, and how many of them failed.
    * `injected_errors` (int): how many of those failed on purpose, by `inject_errors`.
    * `invalid_calls`, `invalid_steps` (int): calls that were written wrongly, and steps that had no other call.
    * `error_codes` (tuple of str): what went wrong in the last response.
    * `hops_found` (int): gold articles found so far; 0 here.

    ## Arguments
    * `mode`: "calculator" or "single".
    * `split`: "train" or "test".
    * `data`: a file, a folder, or "bundled"; None looks in AGENTR1_DATA, then the user's data folder, then takes the
      bundled problems.
    * `on_bad_row`: "refuse" a file with rows that cannot be read, or "skip" them.
    * `operations`: only problems with so many operations (a number or several); bundled problems have 1 to 4, by
      default 2 and 3.
    * `max_number`: the largest number in a bundled problem's text, by default 20.
    * `hasty`: in "calculator", the probability after each call that the demonstration forgets the calls still to come
      and answers with the result it has. Such an expert makes mistakes that imitation copies.
    * `observation`: "text" (what is new) or "messages" (the whole conversation).
    * `history`: with "messages", how many past steps stay in the conversation; None keeps all.
    * `render_mode`: None, or "ansi": `render` returns the transcript.
    * `format`, `system`, `tools_in_template`, `max_steps`, `max_calls_per_step`, `tool_timeout`,
      `tool_seconds_per_episode`, `max_invalid`, `max_result_chars`, `process_reward`, `process_reward_range`,
      `progressive`, `per_hop`, `format_reward`, `invalid_penalty`, `inject_errors`: fields of `ToolSettings`, for
      "calculator". In "single" only `system`, `observation` and `render_mode` are accepted.

    ## Example
    ```python
    import gymnasium

    env = gymnasium.make("agentr1_envs:agentr1/GSM8K-v0", data="bundled", split="test")
    problem, info = env.reset(seed=3)
    call = '<tool_call>{"name": "calculator", "arguments": {"expression": "13 + 12"}}</tool_call>'
    result, reward, terminated, truncated, info = env.step(call)
    assert "25" in result and info["tool_calls"] == 1 and not terminated
    _, reward, terminated, truncated, info = env.step("<answer>-1</answer>")
    assert terminated and reward == 0.0 and info["prediction"] == "-1"
    ```

    ## References
    Cobbe et al.: Training Verifiers to Solve Math Word Problems. 2021.
    [arXiv:2110.14168](https://arxiv.org/abs/2110.14168)

    ## Version History
    v0: first version.
    """
    require_choice("mode", mode, MODES)
    tasks = _Source(split, data, on_bad_row, operations, max_number)
    if mode == "calculator":
        return GSM8KEnv(tasks, hasty=hasty, **settings)
    if hasty:
        raise SettingError("mode='single' has no calls to forget: hasty is for mode='calculator'.")
    refuse_unknown("mode='single'", settings, ("system", "observation", "render_mode"))
    return GSM8KSingleEnv(tasks, **settings)


@takes(ToolSettings, tool_timeout=TOOL_TIMEOUT, **EPISODE)
def gsm8k_oracle(
    *,
    split: str = "train",
    data: str | os.PathLike[str] | None = None,
    on_bad_row: OnBadRow = "refuse",
    operations: int | Sequence[int] | None = None,
    max_number: int | None = None,
    **settings: Any,
) -> AgentEnv:
    """Grade-school word problems with a tool that tells whether an answer is right.

    ## Description
    As `agentr1/GSM8K-v0` with the calculator, and a second tool, ``check_answer(answer)``, which compares an answer
    with the gold one: the set-up Agent-R1 trained with. A model can guess until the tool says yes, so the scores are
    not comparable with any other GSM8K number; that is why it has an id of its own.

    ## Action Space
    `Text`: the model's whole response: calls of the two tools in `format`, or the answer in ``<answer>``.

    ## Observation Space
    `Text`: the problem, then the results of the calls; with ``observation="messages"`` `Messages`: the whole
    conversation, of which the last `history` steps are kept.

    ## Rewards
    1.0 for the right number (`gsm8k_lenient`), in ``reward/task``. ``reward/env`` is what calls pay by `process_reward`
    and ``reward/format`` what form pays or costs; both are 0 unless they are set. The step's reward is the sum.

    ## Starting State
    A problem of the split, drawn by the seed or named by ``options={"task_id": ...}``.

    ## Episode End
    Terminated by the answer (`end_reason` "answer"), or by `max_invalid` steps in a row with invalid calls only
    ("max_invalid"); truncated after `max_steps` ("max_steps"). A right answer told to `check_answer` ends nothing: the
    answer itself does.

    ## Info
    * `success` (bool): whether the answer was right.
    * `task_id` (str): the problem.
    * `end_reason` (str): why the episode is over; empty while it goes on.
    * `steps` (int): responses so far.
    * `reward/task`, `reward/env`, `reward/format` (float): the parts of this step's reward.
    * `gsm8k_official` (float): 1.0 when the answer is right by the original repository's rule, which reads "#### 72".
    * `gsm8k_lenient` (float): 1.0 when it is right wherever it stands; the last number counts where nothing marks one.
    * `prediction` (str): the answer as it was read.
    * `tool_calls`, `tool_errors` (int): calls so far, and how many of them failed. A wrong answer told to
      `check_answer` is no failed call.
    * `injected_errors` (int): how many of those failed on purpose, by `inject_errors`.
    * `invalid_calls`, `invalid_steps` (int): calls that were written wrongly, and steps that had no other call.
    * `error_codes` (tuple of str): what went wrong in the last response.
    * `hops_found` (int): gold articles found so far; 0 here.

    ## Arguments
    * `split`, `data`, `on_bad_row`, `operations`, `max_number`: which problems, as for `agentr1/GSM8K-v0`.
    * `observation`: "text" (what is new) or "messages" (the whole conversation).
    * `history`: with "messages", how many past steps stay in the conversation; None keeps all.
    * `render_mode`: None, or "ansi": `render` returns the transcript.
    * `format`, `system`, `tools_in_template`, `max_steps`, `max_calls_per_step`, `tool_timeout`,
      `tool_seconds_per_episode`, `max_invalid`, `max_result_chars`, `process_reward`, `process_reward_range`,
      `progressive`, `per_hop`, `format_reward`, `invalid_penalty`, `inject_errors`: fields of `ToolSettings`.

    ## Example
    ```python
    import gymnasium

    env = gymnasium.make("agentr1_envs:agentr1/GSM8KOracle-v0", data="bundled")
    problem, info = env.reset(seed=0)
    call = '<tool_call>{"name": "check_answer", "arguments": {"answer": "-1"}}</tool_call>'
    result, reward, terminated, truncated, info = env.step(call)
    assert "Not correct." in result and not terminated
    ```

    ## References
    Cobbe et al.: Training Verifiers to Solve Math Word Problems. 2021.
    [arXiv:2110.14168](https://arxiv.org/abs/2110.14168). The oracle: Cheng et al.: Agent-R1: Training Powerful LLM
    Agents with End-to-End Reinforcement Learning. 2025. [arXiv:2511.14460](https://arxiv.org/abs/2511.14460)

    ## Version History
    v0: first version.
    """
    return GSM8KOracleEnv(_Source(split, data, on_bad_row, operations, max_number), **settings)


class GSM8KEnv(ToolEnv):
    """Problems with a calculator; see `gsm8k`."""

    extra_info: ClassVar[Mapping[str, InfoValue]] = {**CALL_INFO, **NUMBER_SCORES}
    role = "You solve a word problem step by step, with the calculator for the arithmetic. The answer is one number."

    def __init__(self, tasks: "_Source", *, hasty: float = 0.0, **settings: Any) -> None:
        if not 0.0 <= hasty <= 1.0:
            raise SettingError(f"hasty={hasty!r} must be a probability, 0 to 1.")
        settings = {"tool_timeout": TOOL_TIMEOUT, **settings}
        super().__init__(("calculator",), tasks, **settings)
        self._hasty = hasty

    def demonstration(self) -> list[str]:
        """One call a response, then the answer; cut short where the expert is hasty, at the same call every time."""
        calls, hurry = self.expert_calls(self.task), Random(self.task.task_id)
        done = next((made for made in range(1, len(calls)) if hurry.random() < self._hasty), len(calls))
        if done >= len(calls):
            return super().demonstration()
        (result,) = self.bench.call_many([calls[done - 1]], [None])
        return [*map(self.written, calls[:done]), f"<answer>{result.text}</answer>"]

    def score(self, task: Task, response: str, prediction: str | None) -> Score:
        """GSM8K's scores; the lenient one is the reward."""
        return score_number(task, response, prediction)


class GSM8KOracleEnv(GSM8KEnv):
    """Problems with a calculator and an oracle; see `gsm8k_oracle`."""

    def own_tools(self) -> Sequence[EnvTool]:
        """`check_answer`."""
        parameters = {
            "type": "object",
            "properties": {"answer": {"type": "string", "description": "The number you believe is the answer."}},
            "required": ["answer"],
            "additionalProperties": False,
        }
        return [EnvTool("check_answer", "Tell whether an answer is right.", parameters, self._check)]

    def expert_calls(self, task: Task) -> list[ToolCall]:
        """The calculator's calls, then a check of the answer."""
        return [*super().expert_calls(task), ToolCall("check_answer", {"answer": task.answers[0]})]

    def _check(self, params: dict[str, Any]) -> dict[str, Any]:
        right = gsm8k_lenient(params["answer"], self.task.answers[0]) == 1.0
        return {"status": "success", "data": {"correct": right}, "text": "Correct." if right else "Not correct."}


class GSM8KSingleEnv(AgentEnv):
    """Problems answered in one response; see `gsm8k`."""

    extra_info: ClassVar[Mapping[str, InfoValue]] = {**NUMBER_SCORES, "prediction": ""}

    def __init__(
        self,
        tasks: "_Source",
        *,
        system: str = "full",
        observation: ObservationKind = "text",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(tasks, observation=observation, render_mode=render_mode)
        self._system = check_style(system)

    @property
    def system_prompt(self) -> str:
        """Text for the system role."""
        return answer_system(self._system, "You solve a word problem step by step. The answer is one number.")

    @property
    def stop(self) -> list[str]:
        """The end of the answer."""
        return ["</answer>"]

    def demonstration(self) -> list[str]:
        """The gold solution without its calculator annotations, then the answer."""
        worked = _FINAL.sub("", _ANNOTATION.sub("", self.task.solution)).strip()
        return [f"{worked}\n<answer>{self.task.answers[0]}</answer>".strip()]

    def begin(self, task: Task) -> str:
        """The problem."""
        return task.question

    def advance(self, action: str) -> Turn:
        """Score the response."""
        response = without_thinking(action)
        prediction = answer_in_tag(response)
        score = score_number(self.task, response, prediction)
        info: dict[str, InfoValue] = {**score.info, "prediction": response if prediction is None else prediction}
        return Turn(ANSWERED, {"task": score.reward}, "answer", score.success, info)


class _Source:
    """Loads the tasks when first called; what can be checked without reading is checked at once."""

    def __init__(
        self,
        split: str,
        data: str | os.PathLike[str] | None,
        on_bad_row: OnBadRow,
        operations: int | Sequence[int] | None,
        max_number: int | None,
    ) -> None:
        require_choice("split", split, GSM8K.splits)
        self._split, self._data = split, data
        self._on_bad_row: OnBadRow = on_bad_row
        self._operations = (operations,) if isinstance(operations, int) else tuple(operations or ())
        self._max_number = max_number
        if find_file(GSM8K, split, data) is None:
            self._bundled()
        elif max_number is not None:
            raise SettingError(f"max_number={max_number} shapes the bundled problems; it has no effect on other data.")

    def __call__(self) -> TaskSet:
        if find_file(GSM8K, self._split, self._data) is None:
            return self._bundled()
        tasks = load_tasks(GSM8K, self._split, self._data, self._on_bad_row)
        return _with_operations(tasks, self._operations) if self._operations else tasks

    def _bundled(self) -> TaskSet:
        operations = self._operations or DEFAULT_OPERATIONS
        max_number = DEFAULT_MAX_NUMBER if self._max_number is None else self._max_number
        return _bundled_problems(self._split, operations, max_number)


@lru_cache(maxsize=16)
def _bundled_problems(split: str, operations: tuple[int, ...], max_number: int) -> TaskSet:
    """One set a process, shared by its environments."""
    return TaskSet(GSM8K.name, split, word_problems(split, operations, max_number), "bundled sample")


@lru_cache(maxsize=16)
def _with_operations(tasks: TaskSet, operations: tuple[int, ...]) -> TaskSet:
    return tasks.where(lambda task: len(task.plan) in operations, f"operations={operations} fits none")
