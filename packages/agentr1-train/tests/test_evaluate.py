"""Evaluation: its tasks, its figures against closed forms, its files, and ranks that add up to one."""

import json
import math
from dataclasses import replace
from typing import Any

import gymnasium
import pyarrow.parquet as pq
import pytest
from agentr1_train.config import EnvConfig, EvaluationConfig, RolloutConfig
from agentr1_train.env_pool import EnvPool
from agentr1_train.errors import ConfigError
from agentr1_train.evaluate import (
    Evaluation,
    choose_tasks,
    evaluate,
    evaluation_flow,
    open_evaluation_pool,
    pass_at_k,
    wilson_interval,
    write_evaluation,
)
from agentr1_train.renderer import Renderer
from agentr1_train.rollout import update_groups
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.scripted import ScriptedSampler

ROLLOUT = RolloutConfig(max_prompt_tokens=400, max_response_tokens=30)


class NamedEnv(gymnasium.Env[str, str]):
    """Ten named tasks; the answer to task n is n. Reports em, and f1 for odd tasks only."""

    observation_space = action_space = gymnasium.spaces.Text(100)
    task_ids = tuple(f"t{n}" for n in range(10))

    def __init__(self, shake: float = 0.0) -> None:
        self.training_only = ("shake",) if shake else ()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.task = (options or {})["task_id"]
        if self.task == "t9":
            raise RuntimeError("bad row")
        self.steps = 0
        return f"task {self.task}", {"task_id": self.task}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        right = action == self.task
        info = {"task_id": self.task, "success": right, "em": float(right), "reward/task": float(right)}
        info["reward/env"] = 0.125
        if int(self.task[1:]) % 2:
            info["f1"] = 0.5
        return "more", float(right) + 0.125, self.steps == 2, False, info


@pytest.fixture(autouse=True)
def _register() -> None:
    if "stranger/Named-v0" not in gymnasium.registry:
        gymnasium.register("stranger/Named-v0", entry_point=NamedEnv)


def run(tokenizer: Any, sampler: Any, env: str = "stranger/Named-v0", seed: int = 0, **options: Any) -> Evaluation:
    ranks = {name: options.pop(name) for name in ("rank", "world", "gather") if name in options}
    settings = EvaluationConfig(**({"episodes": 10} | options))
    with EnvPool(EnvConfig(id=env)) as pool:
        flow = evaluation_flow(Renderer(tokenizer), ROLLOUT, settings)
        return evaluate(pool, sampler, flow, settings, name="test", seed=seed, concurrency=4, **ranks)


def low_tasks(prompt: str, key: tuple[int, ...]) -> str:
    """Right for tasks 0 to 3."""
    task = prompt.split("task t")[1][0]
    return f"t{task}" if int(task) < 4 else "no idea"


def test_figures_are_the_closed_forms(tiny_tokenizer) -> None:
    done = run(tiny_tokenizer, ScriptedSampler(tiny_tokenizer, low_tasks))
    assert (done.tasks, done.samples, done.success) == (10, 1, 0.4)
    assert (done.success_low, done.success_high) == wilson_interval(4, 10)
    assert done.pass_at == {1: 0.4}
    assert done.steps == pytest.approx(1.8)
    assert done.total_reward == pytest.approx(0.1 * (4 * 2 + 9 * 0.25))
    assert done.reward_parts == {"env": 0.25, "task": pytest.approx(8 / 9)}  # the failed reset gave no part
    assert done.metrics == {"em": pytest.approx(4 / 9), "f1": 0.5, "success": pytest.approx(4 / 9)}
    assert done.end_reasons == {"error": 1, "terminated": 9}
    failed = done.rows[9]
    assert (failed.task_id, failed.error, failed.success) == ("t9", "reset: RuntimeError: bad row", False)
    figures = done.figures()
    assert (figures["success"], figures["em"], figures["ended/error"]) == (0.4, done.metrics["em"], 0.1)
    assert figures["reward/env"] == 0.25


def test_named_tasks_are_drawn_once_each_and_by_seed() -> None:
    names = [f"t{n}" for n in range(100)]
    chosen = [spec.options["task_id"] for spec in choose_tasks(names, 30, 5) if spec.options]
    assert len(set(chosen)) == 30
    assert chosen == [spec.options["task_id"] for spec in choose_tasks(names, 30, 5) if spec.options]
    assert chosen != [spec.options["task_id"] for spec in choose_tasks(names, 30, 6) if spec.options]
    assert [spec.options["task_id"] for spec in choose_tasks(names, 500, 5) if spec.options] == names


def test_seeds_of_an_evaluation_are_no_training_seeds() -> None:
    held_out = {spec.seed for spec in choose_tasks(None, 300, 7)}
    trained = {spec.seed for update in range(50) for spec in update_groups(7, update, 16)}
    assert len(held_out) == 300
    assert not held_out & trained


def test_ranks_add_up_to_one(tiny_model, tiny_tokenizer) -> None:
    sampler = HFSampler(tiny_model, tiny_tokenizer)
    options = {"env": "stranger/Echo-v0", "samples": 3, "temperature": 1.0, "episodes": 7}
    whole = run(tiny_tokenizer, sampler, **options)
    parts: list[Any] = []
    for rank in (0, 1):
        run(tiny_tokenizer, sampler, rank=rank, world=2, gather=lambda rows: parts.append(rows) or [rows], **options)
    assert [len(part) for part in parts] == [12, 9]
    both = run(tiny_tokenizer, sampler, rank=0, world=2, gather=lambda rows: parts, **options)
    assert [(row.task, row.sample, row.responses) for row in both.rows] == [
        (row.task, row.sample, row.responses) for row in whole.rows
    ]
    assert (both.success, both.tasks, both.samples) == (whole.success, 7, 3)


def test_several_samples_give_pass_at_k_and_an_interval_over_tasks(tiny_tokenizer) -> None:
    def sometimes(prompt: str, key: tuple[int, ...]) -> str:
        task, member = int(prompt.split("task t")[1][0]), key[-2]
        return f"t{task}" if task < 5 and member == 0 else "no"

    done = run(tiny_tokenizer, ScriptedSampler(tiny_tokenizer, sometimes), samples=4, temperature=1.0)
    assert done.success == pytest.approx(5 / 40)
    assert done.pass_at == pytest.approx({1: 0.125, 2: 0.25, 4: 0.5})
    # Tasks are worth 1/4 or 0: the spread over tasks, not over 40 independent episodes.
    assert done.success_low == pytest.approx(0.125 - 1.96 * 0.125 / math.sqrt(10), abs=0.03)
    assert done.success_high == pytest.approx(0.125 + 1.96 * 0.125 / math.sqrt(10), abs=0.03)


def test_files_hold_figures_and_episodes(tmp_path, tiny_tokenizer) -> None:
    done = run(tiny_tokenizer, ScriptedSampler(tiny_tokenizer, low_tasks))
    path = write_evaluation(done, tmp_path / "evaluations")
    assert sorted(file.name for file in path.parent.iterdir()) == ["test.json", "test.parquet"]
    figures = json.loads(path.read_text("utf-8"))
    assert (figures["success"], figures["end_reasons"]) == (0.4, {"error": 1, "terminated": 9})
    assert "rows" not in figures
    table = pq.read_table(path.with_suffix(".parquet")).to_pylist()
    assert len(table) == 10
    assert table[1]["responses"] == ["t1", "t1"]
    assert (table[1]["question"], table[1]["metric/em"], table[1]["metric/f1"]) == ("task t1", 1.0, 0.5)
    assert (table[0]["metric/f1"], table[9]["reward/env"]) == (None, None)


def test_pass_at_k_is_the_share_of_subsets_with_a_success() -> None:
    import itertools

    for n, c in ((5, 2), (4, 0), (3, 3), (6, 1)):
        outcomes = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            subsets = list(itertools.combinations(outcomes, k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_wilson_interval_solves_its_equation() -> None:
    for successes, trials in ((4, 10), (1, 200), (150, 200)):
        for bound in wilson_interval(successes, trials):
            distance = (successes / trials - bound) ** 2
            assert distance == pytest.approx(1.959963984540054**2 * bound * (1 - bound) / trials)
    assert wilson_interval(0, 10)[0] == 0.0
    assert wilson_interval(10, 10)[1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"episodes": 0}, "evaluation.episodes = 0"), ({"samples": 2}, "samples = 2 at temperature 0")],
)
def test_refusals(tiny_tokenizer, options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        run(tiny_tokenizer, ScriptedSampler(tiny_tokenizer, low_tasks), **options)


def test_what_is_for_training_only_is_refused() -> None:
    config = EnvConfig(id="stranger/Named-v0", kwargs={"shake": 0.5})
    with pytest.raises(ConfigError, match=r"shake of env.kwargs is for training only.*eval_kwargs = \{shake = 0.0\}"):
        open_evaluation_pool(config)
    open_evaluation_pool(replace(config, eval_kwargs={"shake": 0.0})).close()
    open_evaluation_pool(config, {"shake": 0.0}).close()
