"""Prompting baselines beside a trained model: direct answer, ReAct, retrieve-then-read, on the same tasks.

They are prompt strategies over any text environment: each changes what the model is told and what it is asked, never
how the environment scores. It knows no tool and no format beyond what a setting says; retrieval goes through the
environment's own search tool, as an action.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from agentr1_train.config import ModelConfig, Recipe, RolloutConfig
from agentr1_train.env_pool import EnvAttributes, TextEnv
from agentr1_train.errors import ConfigError, UnknownNameError
from agentr1_train.evaluate import Evaluation, evaluate, evaluation_flow, open_evaluation_pool, write_evaluation
from agentr1_train.flow import AgentFlow, Episode
from agentr1_train.pools import Pool
from agentr1_train.renderer import Observation, Renderer, newest_text
from agentr1_train.rollout import Progress
from agentr1_train.sampler.base import Sampler
from agentr1_train.sampler.build import build_sampler, sampling_tokenizer
from agentr1_train.trajectory import Trajectory

STRATEGIES = ("direct", "react", "retrieve_then_read")
TRAINED = "trained"

_DIRECT = "Answer the question from what you know. Write only the answer, between <answer> and </answer>."
_READ = (
    "Answer the question from the passages. Write only the answer, as short as it can be, "
    "between <answer> and </answer>."
)
_REACT = (
    "Work in turns. In each turn first write one line that begins with 'Thought:' and says what you know and what you "
    "still need; then act, in the form described here."
)
_ANSWER_STOP = ("</answer>",)


@dataclass(frozen=True)
class BaselineOptions:
    """What is compared."""

    strategies: tuple[str, ...] = STRATEGIES
    """Of ``direct``, ``react`` and ``retrieve_then_read``."""
    trained: str = ""
    """Folder of a trained model (``RUN_DIR/model``); empty: only the baselines."""
    react_kwargs: dict[str, Any] = field(default_factory=dict)
    """Laid over the environment's arguments for ``react``; an environment with a ReAct mode of its own then speaks for
    itself. Empty: the same environment, told to think before each action."""
    search_tool: str = ""
    """Tool that ``retrieve_then_read`` calls; empty: the first whose name holds ``search`` or ``retrieve``."""
    search_call: str = '<tool_call>{{"name": "{name}", "arguments": {{"{argument}": {query}}}}}</tool_call>'
    """How a call is written: a ``str.format`` template of ``name``, ``argument`` and ``query`` (a JSON string)."""


def run_baselines(
    recipe: Recipe, options: BaselineOptions, device: torch.device | str, progress: Progress | None = None
) -> dict[str, Evaluation]:
    """Evaluate every strategy with ``recipe.model`` and, on the same tasks, the trained model with the default loop.

    Args:
        recipe: sections ``env`` (with ``eval_kwargs``), ``model``, ``rollout`` (limits), ``sampler``, ``evaluation``.
        options: what is compared.
        device: where it samples.
        progress: told after every episode.

    Returns:
        Evaluations by strategy, in the order of the table. A strategy the environment gives no means for (no search
        tool) is left out.

    Raises:
        UnknownNameError: no strategy, or no tool, of that name.
        ConfigError: nothing is left to compare, or a trained folder is to be sampled by an endpoint.
    """
    for name in options.strategies:
        if name not in STRATEGIES:
            raise UnknownNameError("strategy", name, STRATEGIES)
    if options.trained and recipe.sampler.name == "openai":
        raise ConfigError("--trained names a local folder, sampler.name = 'openai' an endpoint: leave one out.")
    results: dict[str, Evaluation] = {}
    with _Pools(recipe) as pools:
        strategies = options.strategies
        # Asked before any task is played: a task may have tools of its own.
        if "retrieve_then_read" in strategies and not _search_tool(pools.with_kwargs({}), options.search_tool):
            strategies = tuple(name for name in strategies if name != "retrieve_then_read")
        if strategies:
            with _loaded(recipe, recipe.model, device) as (renderer, sampler):
                for name in strategies:
                    pool = pools.with_kwargs(options.react_kwargs if name == "react" else {})
                    flow = make_flow(name, renderer, recipe, options)
                    results[name] = _evaluate(name, pool, sampler, flow, recipe, progress)
        if options.trained:
            with _loaded(recipe, replace(recipe.model, path=options.trained), device) as (renderer, sampler):
                flow = evaluation_flow(renderer, recipe.rollout, recipe.evaluation)
                results[TRAINED] = _evaluate(TRAINED, pools.with_kwargs({}), sampler, flow, recipe, progress)
    if not results:
        raise ConfigError(
            f"{recipe.env.id} has no search tool, so retrieve_then_read cannot run; name another strategy "
            f"({', '.join(STRATEGIES)}) or a trained folder."
        )
    return results


def make_flow(name: str, renderer: Renderer, recipe: Recipe, options: BaselineOptions) -> AgentFlow:
    """Return the flow of a strategy."""
    loop = evaluation_flow(renderer, _one_answer(recipe.rollout, name), recipe.evaluation)
    if name == "direct":
        return PromptedFlow(loop, DirectEnv)
    if name == "retrieve_then_read":
        return PromptedFlow(loop, RetrievingEnv, options)
    return loop if options.react_kwargs else PromptedFlow(loop, ThinkingEnv)


class PromptedFlow:
    """The default loop over an environment that a strategy has put its words around."""

    def __init__(self, loop: AgentFlow, wrapper: type["DirectEnv"], *arguments: Any) -> None:
        self._loop, self._wrapper, self._arguments = loop, wrapper, arguments

    async def run(self, episode: Episode) -> list[Trajectory]:
        """Play one episode."""
        return await self._loop.run(replace(episode, env=self._wrapper(episode.env, *self._arguments)))


class DirectEnv:
    """The question alone, one response, no tools. Shares everything with the environment it stands before."""

    def __init__(self, env: TextEnv) -> None:
        self.env_id = env.env_id
        self._inner = env

    async def reset(
        self, seed: int | None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Pass on."""
        return await self._inner.reset(seed, options)

    async def step(self, action: str) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Pass on."""
        return await self._inner.step(action)

    async def demonstration(self) -> list[str] | None:
        """None: a strategy has none."""
        return None

    async def get_state(self) -> Any:
        """None: there is no copy of a strategy's episode."""
        return None

    async def set_state(self, state: Any) -> None:
        """Pass on."""
        await self._inner.set_state(state)

    @property
    def attributes(self) -> EnvAttributes:
        """A system text that asks for the answer."""
        return EnvAttributes(system_prompt=_DIRECT, stop=_ANSWER_STOP)


class ThinkingEnv(DirectEnv):
    """ReAct (Yao et al. 2023, 2210.03629) by instruction: the environment's own words behind the order to think."""

    @property
    def attributes(self) -> EnvAttributes:
        """The environment's attributes, with the order to think in front of its system text."""
        own = self._inner.attributes
        return replace(own, system_prompt=f"{_REACT}\n\n{own.system_prompt}".strip())


class RetrievingEnv(DirectEnv):
    """One search with the question as it stands, then one response that reads what was found."""

    def __init__(self, env: TextEnv, options: BaselineOptions) -> None:
        super().__init__(env)
        self._options = options

    async def reset(self, seed: int | None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Return the question with the passages that the environment's search gives for it."""
        observation, _ = await self._inner.reset(seed, options)
        question = newest_text(observation)
        tool = _find_tool(self._inner.attributes.tool_schemas, self._options.search_tool)
        if tool is None:
            raise ValueError("the task has no search tool")
        found, _, terminated, truncated, info = await self._inner.step(
            self._options.search_call.format(name=tool[0], argument=tool[1], query=json.dumps(question))
        )
        if terminated or truncated:
            raise ValueError(f"the search ended the episode: {newest_text(found)[:200]}")
        return f"{newest_text(found)}\n\n{question}", info

    @property
    def attributes(self) -> EnvAttributes:
        """A system text that asks to read."""
        return EnvAttributes(system_prompt=_READ, stop=_ANSWER_STOP)


def comparison(results: Mapping[str, Evaluation]) -> Table:
    """Return one table: a strategy a column, so that it fits a terminal; the environment's numbers follow success."""
    first = next(iter(results.values()))
    numbers = sorted({name for item in results.values() for name in item.metrics} - {"success", "steps"})
    table = Table(title=f"{first.env_id}: {first.tasks} tasks, {first.samples} sample(s) each")
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")

    def row(label: str, cells: Iterable[str]) -> None:
        table.add_row(label, *cells)

    items = list(results.values())
    row("success", (f"{item.success:.3f}" for item in items))
    row("95 %", (f"{item.success_low:.3f}..{item.success_high:.3f}" for item in items))
    for number in numbers:
        row(number, (f"{item.metrics[number]:.3f}" if number in item.metrics else "-" for item in items))
    row("return", (f"{item.total_reward:.3f}" for item in items))
    row("steps", (f"{item.steps:.2f}" for item in items))
    row("tokens", (f"{item.response_tokens:.0f}" for item in items))
    row("errors", (str(item.end_reasons.get("error", 0)) for item in items))
    return table


def write_baselines(results: Mapping[str, Evaluation], folder: Path, console: Console | None = None) -> Path:
    """Print the table, write each strategy's files and ``baselines.json``, and return the latter's path."""
    for item in results.values():
        write_evaluation(item, folder)
    path = folder / "baselines.json"
    path.write_text(json.dumps({name: item.figures() for name, item in results.items()}, indent=2) + "\n", "utf-8")
    (console or Console()).print(comparison(results))
    return path


def _evaluate(
    name: str, pool: Pool, sampler: Sampler, flow: AgentFlow, recipe: Recipe, progress: Progress | None
) -> Evaluation:
    return evaluate(
        pool,
        sampler,
        flow,
        recipe.evaluation,
        name=name,
        seed=recipe.seed,
        concurrency=recipe.rollout.concurrency,
        patience_s=recipe.rollout.patience_s,
        progress=progress,
    )


class _Pools(ExitStack):
    """The environments, made once for all strategies that play them with the same arguments."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self._recipe = recipe
        self._open: list[tuple[dict[str, Any], Pool]] = []

    def with_kwargs(self, overlay: dict[str, Any]) -> Pool:
        """Return what plays them with ``overlay`` over their own arguments."""
        for known, pool in self._open:
            if known == overlay:
                return pool
        pool = self.enter_context(open_evaluation_pool(self._recipe.env, overlay, self._recipe.ray))
        self._open.append((overlay, pool))
        return pool


@contextmanager
def _loaded(recipe: Recipe, model: ModelConfig, device: torch.device | str) -> Iterator[tuple[Renderer, Sampler]]:
    tokenizer = sampling_tokenizer(replace(recipe, model=model))
    renderer = Renderer(tokenizer, context=recipe.rollout.context, path=model.path)
    sampler = build_sampler(recipe.sampler, model, tokenizer, device, recipe.endpoint)
    try:
        yield renderer, sampler
    finally:
        sampler.close()


def _one_answer(rollout: RolloutConfig, name: str) -> RolloutConfig:
    return rollout if name == "react" else replace(rollout, max_steps=1)


def _search_tool(pool: Pool, name: str) -> bool:
    """Return whether the environment has a search tool before any task is chosen; a tool asked for must be there."""
    schemas = pool.attributes.tool_schemas
    if _find_tool(schemas, name) is not None:
        return True
    if name:
        raise UnknownNameError("tool", name, [schema["function"]["name"] for schema in schemas])
    return False


def _find_tool(schemas: Sequence[Mapping[str, Any]], name: str) -> tuple[str, str] | None:
    """Return name and query argument of the search tool: its first required argument, or else its first."""
    for schema in schemas:
        function = schema.get("function", schema)
        given = str(function.get("name", ""))
        if given == name or (not name and any(word in given for word in ("search", "retrieve"))):
            parameters = function.get("parameters", {})
            arguments = [*parameters.get("required", ()), *parameters.get("properties", {})]
            if arguments:
                return given, str(arguments[0])
    return None
