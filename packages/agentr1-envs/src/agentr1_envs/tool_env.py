"""`ToolEnv`: many steps, any tools. The only module of this package that imports `agentr1_tools`.

A response either calls tools (they run, and their results are what the model sees next) or gives the answer (it is
scored, and the episode ends). What a model does wrong is feedback, never an exception; how a call is run is the box's.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, ClassVar

from agentr1_tools import (
    BaseTool,
    CallError,
    ErrorInjection,
    ParsedResponse,
    ToolBox,
    ToolCall,
    ToolFormat,
    ToolResult,
    get_format,
    load_tool,
)
from agentr1_tools.paper_expand import PaperExpand
from agentr1_tools.paper_file import Paper, digits_of_date, is_later, letters
from agentr1_tools.paper_index import Encoder, PaperIndex, find_encoder, unit_vectors
from agentr1_tools.paper_search import PaperSearch

from agentr1_envs.agent_env import ANSWERED, InfoValue, ObservationKind, Turn
from agentr1_envs.call_counts import CALL_INFO, CallCounts, CountedEnv, finished, titles_in
from agentr1_envs.errors import SettingError
from agentr1_envs.once import SharedWhileUsed
from agentr1_envs.prompts import tool_stops, tool_system
from agentr1_envs.responses import answer_in_tag
from agentr1_envs.rewards import bounded, hop_reward, resolve_process_reward, success_reward
from agentr1_envs.scoring import TEXT_SCORES, Score, score_text
from agentr1_envs.tasks import Task, TaskSet
from agentr1_envs.tool_settings import ToolSettings, read_settings

__all__ = [
    "BaseTool",
    "CallError",
    "Encoder",
    "EnvTool",
    "Paper",
    "PaperExpand",
    "PaperIndex",
    "PaperSearch",
    "ParsedResponse",
    "ToolCall",
    "ToolEnv",
    "ToolResult",
    "ToolSpec",
    "digits_of_date",
    "find_encoder",
    "is_later",
    "letters",
    "unit_vectors",
]

ToolAnswer = Callable[[dict[str, Any]], dict[str, Any]]
ToolSpec = str | Mapping[str, Any] | BaseTool
"""A tool by name, by ``{"name": ..., **config}``, or as it is."""


class EnvTool(BaseTool):
    """A tool that the environment itself answers, since it needs the state of the episode."""

    timeout = 10.0  # it only looks at the episode; a limit that a busy machine can reach would change results
    cacheable = False
    cooperative = True

    def __init__(self, name: str, description: str, parameters: dict[str, Any], answer: ToolAnswer) -> None:
        self.name, self.description, self.parameters = name, description, parameters
        self._answer = answer

    def execute(self, params: dict[str, Any]) -> dict[str, Any]:
        """Ask the environment."""
        return self._answer(params)


class ToolEnv(CountedEnv):
    """The built-in multi-step tool-calling environment.

    ## Description
    The model gets a task and a set of tools. A response with calls runs them, together, and shows their results; a
    response without calls is the answer, and so is a lone call of the tool `finish` where the environment has it. Calls
    come first: an answer beside calls waits.

    ## Action Space
    `Text`: the model's whole response, calls written in `format`.

    ## Observation Space
    `Text`: the task, then each time the results of the calls, in call order. With ``observation="messages"``,
    `Messages`: the whole conversation, of which the last `history` steps are kept.

    ## Rewards
    The sum of three parts, each in `info`: ``reward/task`` (the score of the answer), ``reward/env`` (process rewards
    of calls, and hops), ``reward/format`` (see `format_reward` and `invalid_penalty`).

    ## Starting State
    A task of the split, drawn by the seed or named by ``options={"task_id": ...}``.

    ## Episode End
    Terminated by the answer (`end_reason` "answer"), or by `max_invalid` steps in a row whose calls were all invalid
    ("max_invalid"). Truncated after `max_steps` responses ("max_steps"); that is never a success.

    ## Arguments
    `tools`: names, ``{"name": ..., **config}`` or `BaseTool`s. `tasks`: a `TaskSet`, or a function that loads one.
    `observation`, `history`, `render_mode` as for `AgentEnv`; everything else is a field of `ToolSettings`.

    ## Version History
    v0: first version.
    """

    reward_parts = ("task", "env", "format")
    extra_info: ClassVar[Mapping[str, InfoValue]] = {**CALL_INFO, **TEXT_SCORES}
    role = "You solve tasks with the help of tools."
    """First sentence of the full system text."""
    closing = ""
    """Last sentence of it, for a task that does not end with an answer."""

    def __init__(
        self,
        tools: Sequence[ToolSpec],
        tasks: TaskSet | Callable[[], TaskSet],
        *,
        observation: ObservationKind = "text",
        history: int | None = None,
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        """Keep the settings; tools open at the first reset.

        Raises:
            SettingError: a setting is unknown or out of range.
        """
        self.settings: ToolSettings = read_settings(settings)
        super().__init__(
            tasks,
            max_steps=self.settings.max_steps,
            observation=observation,
            history=history,
            render_mode=render_mode,
        )
        self._tools = tuple(tools)
        self._process_reward = resolve_process_reward(self.settings.process_reward)
        self._format = _format_named(self.settings.format)
        self._system_text: str | None = None
        self._bench: _Bench | None = None

    def score(self, task: Task, response: str, prediction: str | None) -> Score:
        """What the final answer is worth; the default is exact match after HotpotQA's normalisation.

        ``response`` is the final one without its thinking, ``prediction`` what stands in its answer tag, or None.
        """
        return score_text(task, response if prediction is None else prediction)

    def tool_specs(self) -> Sequence[ToolSpec]:
        """The tools; asked once, at first use, so that it may look at the tasks."""
        return self._tools

    def own_tools(self) -> Sequence[BaseTool]:
        """Tools that the environment answers itself; none by default."""
        return []

    def expert_queries(self, task: Task) -> tuple[str, ...]:
        """What the scripted expert asks the first tool, in order: the task's plan."""
        return task.plan

    def expert_calls(self, task: Task) -> list[ToolCall]:
        """The calls of the scripted expert: its queries, given to the first argument of the first tool."""
        function = self.tool_schemas[0]["function"]
        arguments: list[str] = function["parameters"].get("required") or list(function["parameters"]["properties"])
        return [ToolCall(function["name"], {arguments[0]: item}) for item in self.expert_queries(task)]

    def demonstration(self) -> list[str]:
        """One call a response, then the answer; a plan with more calls than steps puts several in a response."""
        calls = [self.written(call) for call in self.expert_calls(self.task)]
        size = max(1, -(-len(calls) // max(self.max_steps - 1, 1)))
        grouped = ["\n".join(calls[i : i + size]) for i in range(0, len(calls), size)]
        return [*grouped, f"<answer>{self.task.answers[0]}</answer>"]

    def written(self, call: ToolCall) -> str:
        """The call in its usual form; where that names no arguments, the first parameter's value alone if it can be."""
        if not self._format.names_arguments:
            schemas = {schema["function"]["name"]: schema["function"]["parameters"] for schema in self.tool_schemas}
            first = list(schemas.get(call.name, {}).get("properties", ()))[:1]
            if first and list(call.arguments) == first:
                with suppress(ValueError):
                    return self._format.format_call(ToolCall(call.name, positional=(call.arguments[first[0]],)))
        return self._format.format_call(call)

    @property
    def system_prompt(self) -> str:
        """Text for the system role, in the style the settings ask for."""
        if self._system_text is None:
            schemas = self.tool_schemas
            names = [schema["function"]["name"] for schema in schemas]
            self._system_text = tool_system(
                self.settings, self.role, names, lambda: self._format.instructions(schemas), self.closing
            )
        return self._system_text

    @property
    def tools_in_template(self) -> bool:
        """True when the schemas are left to the chat template."""
        return self.settings.tools_in_template

    @property
    def tool_schemas(self) -> list[dict[str, Any]]:
        """The tools in the OpenAI function format; fresh objects at each access."""
        return deepcopy(self.bench.schemas)

    @property
    def stop(self) -> list[str]:
        """Texts after which the rest of a response means nothing."""
        return tool_stops(self.settings.max_calls_per_step, self._format.call_end, self._format.result_start)

    @property
    def training_only(self) -> tuple[str, ...]:
        """`inject_errors`, when it is set."""
        return ("inject_errors",) if self.settings.inject_errors else ()

    @property
    def bench(self) -> "_Bench":
        """The tool boxes, made at first use."""
        if self._bench is None:
            self._bench = _Bench(self.tool_specs(), self.own_tools(), self.settings)
        return self._bench

    def begin(self, task: Task) -> str:
        """Forget the last episode's counts, draw which calls will fail; the task opens with its question."""
        self.bench.open()
        self._counts = CallCounts()
        if self.settings.inject_errors:
            # A stream of its own: later resets draw the same tasks with and without injection.
            self._injected_seed = int(self.np_random.spawn(1)[0].integers(2**63))
        return task.question

    def advance(self, action: str) -> Turn:
        """Run the calls of a response, or score the answer."""
        parsed = self._format.parse(action)
        return self._run(parsed) if parsed.items else self.answer(parsed.content)

    @property
    def is_copied(self) -> bool:
        """True where tools are shared ones, by name, or the class says in `own_state` what more it keeps."""
        own = {name for name in _KEEPING if getattr(type(self), name) is not getattr(ToolEnv, name)}
        return "own_state" in own or not (own or self.bench.private)

    def close(self) -> None:
        """Let go of the tools, which closes those that no other environment uses; a later reset opens them again."""
        self._bench = None
        super().close()

    def answer(self, response: str) -> Turn:
        """What a response without calls does: it is the answer, and is scored."""
        prediction = answer_in_tag(response)
        score = self.score(self.task, response, prediction)
        parts = {
            "task": success_reward(self.settings.progressive, score.reward, len(self._counts.hops)),
            "format": self.settings.format_reward if prediction is not None else 0.0,
        }
        said = (response if prediction is None else prediction).strip()
        info: dict[str, InfoValue] = {**score.info, "prediction": said, "error_codes": ()}
        return Turn(ANSWERED, parts, "answer", score.success, info)

    def _run(self, parsed: ParsedResponse) -> Turn:
        counts, limit = self._counts, self.settings.max_calls_per_step
        items, over = parsed.items, parsed.items[limit:]
        results = self._call(items[:limit])
        if len(items) == 1 and (said := finished(results[0])) is not None:
            return self.answer(f"<answer>{said}</answer>")
        message = f"not run: at most {limit} calls a response are run."
        results += [ToolResult.failure("CALL_LIMIT", message) for _ in over]
        invalid = counts.add(results)
        earned = self._earned(items, results)
        names = [item.name if isinstance(item, ToolCall) else "" for item in items]
        feedback = self._format.render(list(zip(names, results, strict=True)))
        parts = {"env": earned, "format": -self.settings.invalid_penalty if invalid else 0.0}
        ended = "max_invalid" if counts.invalid_in_a_row >= self.settings.max_invalid else ""
        return Turn(feedback, parts, ended, info=counts.info(results))

    def _call(self, items: Sequence[ToolCall | CallError]) -> list[ToolResult]:
        if self._counts.seconds >= self.settings.tool_seconds_per_episode:
            message = "not run: the tool time of this episode is used up; give the final answer."
            return [ToolResult.failure("TIMEOUT", message) for _ in items]
        started = time.perf_counter()
        results = self.bench.call_many(items, [self._injected(*numbered) for numbered in enumerate(items)])
        self._counts.seconds += time.perf_counter() - started
        return results

    def _injected(self, place: int, item: ToolCall | CallError) -> str | None:
        """The error this call of the step ends in on purpose; what the environment itself answers never does."""
        if self._injected_seed is None or (isinstance(item, ToolCall) and item.name in self.bench.own):
            return None
        return ErrorInjection(self.settings.inject_errors, self._injected_seed).code(self._counts.calls + place)

    def _earned(self, items: Sequence[ToolCall | CallError], results: Sequence[ToolResult]) -> float:
        """Process rewards of the calls that ran, and what newly found hops pay."""
        earned, settings, hops = 0.0, self.settings, self._counts.hops
        found_before, gold = len(hops), self.task.supporting_titles
        for item, result in zip(items, results, strict=True):
            if isinstance(item, CallError):
                continue
            if self._process_reward is not None:
                earned += bounded(self._process_reward(item, result), result.ok, settings.process_reward_range)
            if result.ok:
                hops.update(title for title in titles_in(result.data) if title in gold)
        return earned + hop_reward(settings.progressive, found_before, len(hops), settings.per_hop)


_KEEPING = ("own_state", "begin", "advance", "answer", "_run", "_call")
"""Methods in which a subclass may keep something of an episode, and the one that tells what."""


class _Bench:
    """The tools of one environment: named tools in a box the process shares, its own tools in a box of its own."""

    def __init__(self, specs: Sequence[ToolSpec], own: Sequence[BaseTool], settings: ToolSettings) -> None:
        if not specs and not own:
            raise SettingError("tools=[]: needs at least one tool; see `agentr1-tools list`.")
        named = [spec for spec in specs if not isinstance(spec, BaseTool)]
        if settings.tool_timeout is not None and len(named) < len(specs):
            raise SettingError("tool_timeout= is for tools given by name; set `timeout` on the tools you made.")
        private = [*(spec for spec in specs if isinstance(spec, BaseTool)), *own]
        self.own, self.private = frozenset(tool.name for tool in own), bool(private)
        self._boxes: list[ToolBox] = []
        if named:
            self._boxes.append(_shared_box(named, settings.max_result_chars, settings.tool_timeout))
        if private:
            self._boxes.append(ToolBox(private, max_result_chars=settings.max_result_chars))
        self.schemas: list[dict[str, Any]] = [schema for box in self._boxes for schema in box.schemas]
        self._box_of = {name: box for box in self._boxes for name in box.names}
        self._opened = False

    def open(self) -> None:
        """Open the tools, once."""
        if not self._opened:
            for box in self._boxes:
                box.open()
            self._opened = True

    def call_many(self, items: Sequence[ToolCall | CallError], inject: Sequence[str | None]) -> list[ToolResult]:
        """Results in the order of the calls; calls of one box run together."""
        self.open()
        if len(self._boxes) == 1:
            return self._boxes[0].call_many(list(items), inject)
        results: dict[int, ToolResult] = {}
        for box in self._boxes:
            places = [place for place, item in enumerate(items) if self._box_for(item) is box]
            if places:
                answers = box.call_many([items[place] for place in places], [inject[place] for place in places])
                results.update(zip(places, answers, strict=True))
        return [results[place] for place in range(len(items))]

    def _box_for(self, item: ToolCall | CallError) -> ToolBox:
        if isinstance(item, ToolCall) and (near := get_close_matches(item.name, list(self._box_of), n=1)):
            return self._box_of.get(item.name, self._box_of[near[0]])
        return self._boxes[0]


_BOXES = SharedWhileUsed[ToolBox]()


def _shared_box(specs: Sequence[str | Mapping[str, Any]], max_result_chars: int, tool_timeout: float | None) -> ToolBox:
    """The process's box for these tools: environments share its cache, and the last to let go of it closes it."""
    configs = [{"name": spec} if isinstance(spec, str) else dict(spec) for spec in specs]
    key = json.dumps([configs, max_result_chars, tool_timeout], sort_keys=True, default=str)

    def make() -> ToolBox:
        return ToolBox([_load(config, tool_timeout) for config in configs], max_result_chars=max_result_chars)

    return _BOXES.get(key, make)


@lru_cache(maxsize=16)
def _format_named(name: str) -> ToolFormat:
    """Formats keep no state, so one instance serves every environment of the process."""
    try:
        return get_format(name)
    except (LookupError, TypeError, ValueError) as error:
        raise SettingError(f"format={name!r}: {error}") from error


def _load(config: Mapping[str, Any], tool_timeout: float | None) -> BaseTool:
    if not isinstance(config.get("name"), str):
        raise SettingError(f"tool {dict(config)!r}: needs a 'name'; see `agentr1-tools list`.")
    try:
        tool = load_tool(config["name"], **{key: value for key, value in config.items() if key != "name"})
    except (LookupError, TypeError, ValueError) as error:
        raise SettingError(f"tool {config['name']!r}: {error}") from error
    if tool_timeout is not None:
        tool.timeout = tool_timeout
    return tool
