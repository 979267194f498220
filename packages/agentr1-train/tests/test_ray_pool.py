"""Episodes in actors of a real Ray cluster of two nodes: the same as here, and whole when actors and nodes die."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from agentr1_train.baselines import STRATEGIES, BaselineOptions, run_baselines
from agentr1_train.config import (
    EnvConfig,
    EvaluationConfig,
    ModelConfig,
    RayConfig,
    Recipe,
    RolloutConfig,
    recipe_from_dict,
)
from agentr1_train.env_pool import EnvPool
from agentr1_train.errors import ClusterError, ConfigError, EnvironmentLoadError
from agentr1_train.flow import AgentEnvLoop
from agentr1_train.ray_pool import RayPool, open_pool
from agentr1_train.renderer import Renderer
from agentr1_train.rollout import collect, update_groups
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.scripted import ScriptedSampler
from agentr1_train.tracking import read_events, read_rollouts, rollout_path
from agentr1_train.trainer import supervised_only, train
from agentr1_train.trajectory import Trajectory, TrajectoryGroup

SETTINGS = RolloutConfig(max_prompt_tokens=2000, max_response_tokens=24)
GROUPS, SIZE = 4, 2
NODE = {"num_cpus": 2, "object_store_memory": 80_000_000}
PATIENT = {"gcs_rpc_server_reconnect_timeout_s": 300, "health_check_timeout_ms": 30_000}
"""A machine that is busy with other tests is no dead node."""
START_S = 300.0
"""Processes that start side by side on such a machine take their time."""


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head node, in processes of its own; gone afterwards, whatever happened."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    head = {**NODE, "include_dashboard": False, "_system_config": PATIENT}
    found = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield found
    finally:
        found.shutdown()


@pytest.fixture
def second_node(cluster: Any) -> Iterator[Any]:
    """A second node, unless the test removes it; the head has noticed its end before the next test begins."""
    node = cluster.add_node(**NODE)
    yield node
    if node in cluster.worker_nodes:
        cluster.remove_node(node)
    cluster.wait_for_nodes(timeout=120)


def script(prompt: str, key: tuple[int, ...]) -> str:
    return "w" * (1 + (len(prompt) + sum(key)) % 9)


def roll(pool: Any, tokenizer: Any, sampler: Any = None, concurrency: int = 8) -> list[TrajectoryGroup]:
    flow = AgentEnvLoop(Renderer(tokenizer), SETTINGS)
    groups = update_groups(3, 0, GROUPS)
    sampler = sampler or ScriptedSampler(tokenizer, script)
    return collect(pool, sampler, flow, groups, group_size=SIZE, key=(3, 0), concurrency=concurrency)


def untimed(groups: list[TrajectoryGroup]) -> list[Trajectory]:
    return [
        replace(item, steps=tuple(replace(step, sample_s=0.0, env_s=0.0) for step in item.steps))
        for group in groups
        for item in group.trajectories
    ]


def diary(**kwargs: Any) -> EnvConfig:
    return EnvConfig(id="cluster_env:Diary-v0", kwargs=kwargs, step_timeout_s=300.0)  # a gate may hold it


def settings(cluster: Any, **others: Any) -> RayConfig:
    return RayConfig(**{"actors": 2, "address": cluster.address, "start_timeout_s": START_S, **others})


def lines(log: Path) -> list[tuple[int, int, str]]:
    """What the environments wrote: process, seed, ``reset`` or ``step``."""
    found = (line.split() for line in log.read_text().splitlines()) if log.exists() else ()
    return [(int(pid), int(seed), what) for pid, seed, what in found]


def standing(pool: RayPool) -> RayPool:
    """Wait for all actors; a rollout begins as soon as one stands."""
    deadline = time.monotonic() + START_S
    while len(pool._admit()) < len(pool._workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    return pool


def at_the_gate(pool: RayPool, log: Path, gate: Path, harm: Callable[[], None]) -> threading.Thread:
    """Do harm while two processes wait in the middle of episodes; let those go on once the pool has noticed."""

    def until(holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 45  # before the gate gives way by itself
        while not holds() and time.monotonic() < deadline:
            time.sleep(0.02)

    def watch() -> None:
        try:
            until(lambda: len({pid for pid, _, what in lines(log) if what == "step"}) == 2)
            harm()
            until(lambda: pool.losses > 0)
        finally:
            gate.touch()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def begun(log: Path) -> Counter[int]:
    return Counter(seed for _, seed, what in lines(log) if what == "reset")


@pytest.mark.slow
@pytest.mark.ranks
def test_actors_on_two_nodes_play_what_is_played_here(
    cluster: Any, second_node: Any, tiny_model: Any, tiny_tokenizer: Any, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with EnvPool(diary()) as pool:
        here, sampled = roll(pool, tiny_tokenizer), roll(pool, tiny_tokenizer, HFSampler(tiny_model, tiny_tokenizer))
        facts = pool.task_ids, pool.training_only, pool.attributes
    with standing(RayPool(diary(log=str(log)), settings(cluster))) as pool:
        assert (pool.task_ids, pool.training_only, pool.attributes) == facts
        assert untimed(roll(pool, tiny_tokenizer)) == untimed(here)
        there = roll(pool, tiny_tokenizer, HFSampler(tiny_model, tiny_tokenizer))
        assert len({name for _, name, _ in pool._pickled}) == 1  # equal flows have one name: they travel once
        import ray

        nodes = {row["NodeID"] for row in ray.nodes() if row["Alive"]}
        assert len(nodes) == 2
    assert len({pid for pid, _, _ in lines(log)}) == 2
    assert os.getpid() not in {pid for pid, _, _ in lines(log)}
    assert begun(log) == {spec.seed: 2 * SIZE for spec in update_groups(3, 0, GROUPS)}
    for mine, other in zip(untimed(sampled), untimed(there), strict=True):
        assert [step.response_ids for step in mine.steps] == [step.response_ids for step in other.steps]
        for one, two in zip(mine.steps, other.steps, strict=True):
            assert one.response_logprobs == pytest.approx(two.response_logprobs, abs=1e-5)


@pytest.mark.slow
@pytest.mark.ranks
def test_the_episodes_of_a_killed_actor_begin_again(cluster: Any, tiny_tokenizer: Any, tmp_path: Path, capfd) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    with EnvPool(diary()) as pool:
        here = untimed(roll(pool, tiny_tokenizer))
    with standing(RayPool(diary(log=str(log), gate=str(gate)), settings(cluster))) as pool:
        killer = at_the_gate(pool, log, gate, lambda: os.kill(lines(log)[0][0], signal.SIGKILL))
        there = untimed(roll(pool, tiny_tokenizer))
        killer.join()
        assert pool.losses == 1
    assert there == here  # each once, in order, token for token
    assert sum(begun(log).values()) > GROUPS * SIZE
    assert "a Ray actor was lost" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.ranks
def test_the_episodes_of_a_removed_node_begin_again(
    cluster: Any, second_node: Any, tiny_tokenizer: Any, tmp_path: Path
) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    with EnvPool(diary()) as pool:
        here = untimed(roll(pool, tiny_tokenizer))
    whole = settings(cluster, cpus_per_actor=NODE["num_cpus"])  # an actor fills a node: there is one on each
    with standing(RayPool(diary(log=str(log), gate=str(gate)), whole)) as pool:
        remover = at_the_gate(pool, log, gate, lambda: cluster.remove_node(second_node, allow_graceful=False))
        there = untimed(roll(pool, tiny_tokenizer))
        remover.join()
        assert pool.losses == 1
    assert there == here
    assert sum(begun(log).values()) > GROUPS * SIZE


@pytest.mark.slow
@pytest.mark.ranks
def test_an_episode_that_kills_every_actor_ends_as_an_error(cluster: Any, tiny_tokenizer: Any) -> None:
    deadly = update_groups(3, 0, GROUPS)[1].seed
    with EnvPool(diary()) as pool:
        here = untimed(roll(pool, tiny_tokenizer))
    with RayPool(diary(deadly=[deadly]), settings(cluster, actors=1, attempts=2)) as pool:
        there = untimed(roll(pool, tiny_tokenizer, concurrency=1))
        assert pool.losses == 2 * SIZE
    for one, two in zip(here, there, strict=True):
        if one.seed != deadly:
            assert one == two
        else:
            assert (two.end_reason, two.steps) == ("error", ())
            assert "2 actors were lost" in str(two.error)
            assert (two.group, two.member, two.env_id) == (one.group, one.member, one.env_id)


@pytest.mark.slow
@pytest.mark.ranks
def test_what_cannot_start_is_refused(cluster: Any) -> None:
    with pytest.raises(ConfigError, match=r"ray.actors = 50 of 1 CPUs each: the cluster has \d CPUs in all"):
        RayPool(diary(), settings(cluster, actors=50))
    with pytest.raises(EnvironmentLoadError, match="no game here"):
        RayPool(diary(broken="no game here"), settings(cluster, actors=1))
    with pytest.raises(ClusterError, match=r"no Ray actor stood within ray\.start_timeout_s = 0\.01 s"):
        RayPool(diary(), settings(cluster, actors=1, start_timeout_s=0.01))
    import ray

    assert not ray.is_initialized()  # the connection ended with the last pool


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.timeout(1000)
def test_training_over_ray_under_the_launcher(
    cluster: Any,
    second_node: Any,
    symbol_recipe: Callable[..., dict[str, Any]],
    tmp_path: Path,
    launch: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two ranks, an actor each, and one each for the evaluations; the first rollout is that of one rank without Ray."""
    sections = {"updates": 2, "evaluation": {"episodes": 4}}
    train(recipe_from_dict(symbol_recipe(**sections, run_dir=str(tmp_path / "alone"))))
    recipe = tmp_path / "recipe.toml"
    ray = {"actors": 1, "address": cluster.address, "start_timeout_s": START_S}
    recipe.write_text(tomli_w.dumps(symbol_recipe(**sections, ray=ray)), "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    done = launch("--module", "agentr1_train", recipe, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    first = [read_rollouts(rollout_path(tmp_path / name, 1)) for name in ("alone", "run")]
    alone, over_ray = ([tuple(step.response_ids for step in item.steps) for item in items] for items in first)
    assert alone == over_ray
    events = read_events(tmp_path / "run" / "events.jsonl")
    assert [event["step"] for event in events if event["kind"] == "update"] == [1, 2]
    figures = [
        next(e for e in read_events(tmp_path / name / "events.jsonl") if e["kind"] == "evaluation")
        for name in ("alone", "run")
    ]
    assert figures[0]["eval/return"] == figures[1]["eval/return"]


@pytest.mark.slow
@pytest.mark.ranks
def test_a_warm_start_over_ray_is_the_one_without(
    cluster: Any, second_node: Any, symbol_recipe: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Demonstrations are played by the actors: the same batches, so the same losses and weights."""
    table = symbol_recipe(
        env={"id": "symbol_env:ShownSymbol-v0"},
        rollout={"max_response_tokens": 2},
        supervised={"batches": 3, "batch_size": 8, "lr": 1e-2},
    )
    over_ray = {"actors": 2, "address": cluster.address, "start_timeout_s": START_S}
    seen = []
    for name, section in (("here", {}), ("there", over_ray)):
        folder = supervised_only(recipe_from_dict(table | {"run_dir": str(tmp_path / name), "ray": section}))
        events = read_events(tmp_path / name / "events.jsonl")
        losses = [{key: value for key, value in event.items() if not key.startswith("time/")} for event in events]
        seen.append((losses, (folder / "model.safetensors").read_bytes()))
    assert len(seen[0][0]) == 3
    assert seen[0] == seen[1]


@pytest.mark.slow
@pytest.mark.ranks
def test_baselines_over_ray_are_those_without(cluster: Any, tiny_model_dir: Path) -> None:
    """Each strategy's flow travels, with the words that it puts around the environment."""
    recipe = Recipe(
        env=EnvConfig(id="test_baselines:stranger/Facts-v0"),
        model=ModelConfig(path=str(tiny_model_dir)),
        rollout=RolloutConfig(max_prompt_tokens=800, max_response_tokens=16, patience_s=10.0),
        evaluation=EvaluationConfig(episodes=3),
    )
    options = BaselineOptions(trained=str(tiny_model_dir))
    here = run_baselines(recipe, options, "cpu")
    there = run_baselines(replace(recipe, ray=settings(cluster, actors=1)), options, "cpu")
    assert list(here) == list(there) == [*STRATEGIES, "trained"]
    for name, item in here.items():
        assert not any(row.error for row in item.rows)
        assert there[name].rows == item.rows


def test_no_actors_no_ray() -> None:
    with open_pool(diary(), RayConfig()) as pool:
        assert isinstance(pool, EnvPool)
