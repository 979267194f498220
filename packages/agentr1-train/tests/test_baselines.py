"""Baselines: what each strategy shows the model and does in the environment, and the table beside a trained folder."""

import json
import re
from typing import Any

import gymnasium
import pytest
from agentr1_train.baselines import (
    STRATEGIES,
    BaselineOptions,
    comparison,
    make_flow,
    run_baselines,
    write_baselines,
)
from agentr1_train.config import EnvConfig, EvaluationConfig, ModelConfig, Recipe, RolloutConfig, SamplerConfig
from agentr1_train.env_pool import EnvPool
from agentr1_train.errors import ConfigError, UnknownNameError
from agentr1_train.evaluate import evaluate
from agentr1_train.renderer import Renderer
from agentr1_train.sampler.scripted import ScriptedSampler
from rich.console import Console

FACTS = {"Ada": "engines", "Bob": "boats", "Cora": "clocks"}


class FactsEnv(gymnasium.Env[str, str]):
    """Asks what somebody builds. A search call gives the passage; anything else is the answer."""

    observation_space = action_space = gymnasium.spaces.Text(500)
    system_prompt = "Call wiki_search, or answer."
    task_ids = tuple(FACTS)

    def __init__(self, mode: str = "tools", search: str = "wiki_search") -> None:
        self.mode = mode
        names = ("calculator", search) if search else ("calculator",)
        parameters = {"type": "object", "properties": {"limit": {}, "query": {}}, "required": ["query"]}
        self.tool_schemas = [{"type": "function", "function": {"name": n, "parameters": parameters}} for n in names]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.who, self.steps = (options or {})["task_id"], 0
        return f'What does {self.who} build, "exactly"?', {"task_id": self.who}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        info = {"task_id": self.who, "success": False, "em": 0.0}
        if call := re.search(r"<tool_call>(.*)</tool_call>", action):
            query = json.loads(call.group(1))["arguments"]["query"]
            found = [f"{who} builds {what}." for who, what in FACTS.items() if who in query]
            return f"found: {found[0]}", 0.0, False, self.steps >= 4, info
        right = FACTS[self.who] in action
        return "over", float(right), True, False, info | {"success": right, "em": float(right)}


if "stranger/Facts-v0" not in gymnasium.registry:  # here, so that Ray's actors find it in this file
    gymnasium.register("stranger/Facts-v0", entry_point=FactsEnv)


def recipe_for(model_dir: Any, **kwargs: Any) -> Recipe:
    return Recipe(
        env=EnvConfig(id="stranger/Facts-v0", kwargs=kwargs),
        model=ModelConfig(path=str(model_dir)),
        rollout=RolloutConfig(max_prompt_tokens=800, max_response_tokens=60),
        sampler=SamplerConfig(max_batch=4),
        evaluation=EvaluationConfig(episodes=3),
    )


def play(name: str, tokenizer: Any, script: Any, recipe: Recipe, **options: Any) -> Any:
    """Evaluate one strategy with a scripted model; return the evaluation and the prompts it saw."""
    prompts: list[str] = []

    def recorded(prompt: str, key: tuple[int, ...]) -> str:
        prompts.append(prompt)
        return script(prompt)

    flow = make_flow(name, Renderer(tokenizer), recipe, BaselineOptions(**options))
    with EnvPool(recipe.env) as pool:
        sampler = ScriptedSampler(tokenizer, recorded)
        return evaluate(pool, sampler, flow, recipe.evaluation, name=name, seed=0, concurrency=1), prompts


def reader(prompt: str) -> str:
    """Answers from what stands in the prompt; without a passage it guesses clocks."""
    found = re.search(r"builds (\w+)\.", prompt)
    return f"<answer>{found.group(1) if found else 'clocks'}</answer> and more"


def test_direct_shows_the_question_alone_and_asks_once(tiny_model_dir, tiny_tokenizer) -> None:
    done, prompts = play("direct", tiny_tokenizer, reader, recipe_for(tiny_model_dir))
    assert done.success == pytest.approx(1 / 3)
    assert (done.steps, len(prompts)) == (1.0, 3)
    assert all("between <answer> and </answer>" in prompt and "wiki_search" not in prompt for prompt in prompts)
    assert [row.responses[0] for row in done.rows] == ["<answer>clocks</answer>"] * 3  # the stop string ends it
    call = '<tool_call>{"arguments": {"query": "Ada"}}</tool_call>'
    stubborn, _ = play("direct", tiny_tokenizer, lambda prompt: call, recipe_for(tiny_model_dir))
    assert (stubborn.success, stubborn.end_reasons) == (0.0, {"max_steps": 3})


def test_retrieve_then_read_searches_with_the_question_and_reads_once(tiny_model_dir, tiny_tokenizer) -> None:
    done, prompts = play("retrieve_then_read", tiny_tokenizer, reader, recipe_for(tiny_model_dir))
    assert done.success == 1.0
    assert (done.steps, len(prompts)) == (1.0, 3)  # the search is nobody's step: no model wrote it
    assert all(re.search(r'found: (\w+) builds \w+\.\n\nWhat does \1 build, "exactly"\?', prompt) for prompt in prompts)
    assert all("Answer the question from the passages" in prompt for prompt in prompts)


def test_react_tells_to_think_and_leaves_the_loop_as_it_is(tiny_model_dir, tiny_tokenizer) -> None:
    def thinker(prompt: str) -> str:
        if "found:" in prompt:
            return "Thought: I know.\n" + reader(prompt)
        who = re.search(r"does (\w+) build", prompt)
        assert who
        return f'Thought: look.\n<tool_call>{{"arguments": {{"query": "{who.group(1)}"}}}}</tool_call>'

    done, prompts = play("react", tiny_tokenizer, thinker, recipe_for(tiny_model_dir))
    assert (done.success, done.steps) == (1.0, 2.0)
    assert all("begins with 'Thought:'" in prompt and "Call wiki_search, or answer." in prompt for prompt in prompts)
    _, prompts = play("react", tiny_tokenizer, thinker, recipe_for(tiny_model_dir), react_kwargs={"mode": "react"})
    assert not any("Thought:'" in prompt for prompt in prompts)  # the environment's own mode speaks for itself


def test_a_run_compares_all_strategies_with_the_trained_folder(tiny_model_dir, tmp_path) -> None:
    recipe = recipe_for(tiny_model_dir)
    results = run_baselines(recipe, BaselineOptions(trained=str(tiny_model_dir)), "cpu")
    assert list(results) == [*STRATEGIES, "trained"]
    assert {tuple(row.task_id for row in item.rows) for item in results.values()} == {tuple(FACTS)}
    assert all(not row.error for item in results.values() for row in item.rows)
    console = Console(record=True, width=160)
    path = write_baselines(results, tmp_path / "out", console)
    written = json.loads(path.read_text("utf-8"))
    assert {name: written[name]["success"] for name in written} == {n: item.success for n, item in results.items()}
    assert (path.parent / "retrieve_then_read.parquet").is_file()
    text = console.export_text()
    assert all(word in text for word in (*STRATEGIES, "trained", "em", "95 %", "3 tasks"))
    table = comparison(results)
    assert [column.header for column in table.columns] == ["", *results]


def test_without_a_search_tool_retrieval_is_left_out(tiny_model_dir) -> None:
    recipe = recipe_for(tiny_model_dir, search="")
    assert list(run_baselines(recipe, BaselineOptions(), "cpu")) == ["direct", "react"]
    with pytest.raises(ConfigError, match="no search tool"):
        run_baselines(recipe, BaselineOptions(("retrieve_then_read",)), "cpu")
    with pytest.raises(UnknownNameError, match="unknown tool 'wiki'"):
        run_baselines(recipe, BaselineOptions(("retrieve_then_read",), search_tool="wiki"), "cpu")
    with pytest.raises(UnknownNameError, match="Did you mean 'direct'"):
        run_baselines(recipe, BaselineOptions(("dirct",)), "cpu")


def test_a_named_tool_is_called(tiny_model_dir, tiny_tokenizer) -> None:
    recipe = recipe_for(tiny_model_dir, search="find")
    done, _ = play("retrieve_then_read", tiny_tokenizer, reader, recipe, search_tool="find")
    assert done.success == 1.0
