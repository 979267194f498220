"""Episodes in actors of a real Ray cluster of two nodes: the same as here."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agentr1_train.config import EnvConfig, RayConfig, RolloutConfig
from agentr1_train.env_pool import EnvPool
from agentr1_train.flow import AgentEnvLoop
from agentr1_train.ray_pool import RayPool, open_pool
from agentr1_train.renderer import Renderer
from agentr1_train.rollout import collect, update_groups
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.scripted import ScriptedSampler
from agentr1_train.trajectory import Trajectory, TrajectoryGroup

SETTINGS = RolloutConfig(max_prompt_tokens=2000, max_response_tokens=24)
GROUPS, SIZE = 4, 2
NODE = {"num_cpus": 2, "object_store_memory": 80_000_000}
PATIENT = {"gcs_rpc_server_reconnect_timeout_s": 300, "health_check_timeout_ms": 30_000}
"""A machine that is busy with other tests is no dead node."""


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
    """A second node, unless the test removes it."""
    node = cluster.add_node(**NODE)
    yield node
    if node in cluster.worker_nodes:
        cluster.remove_node(node)


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
    return EnvConfig(id="cluster_env:Diary-v0", kwargs=kwargs)


def settings(cluster: Any, **others: Any) -> RayConfig:
    return RayConfig(**{"actors": 2, "address": cluster.address, **others})


def lines(log: Path) -> list[tuple[int, int, str]]:
    """What the environments wrote: process, seed, ``reset`` or ``step``."""
    found = (line.split() for line in log.read_text().splitlines()) if log.exists() else ()
    return [(int(pid), int(seed), what) for pid, seed, what in found]


def standing(pool: RayPool) -> RayPool:
    """Wait for all actors; a rollout begins as soon as one stands."""
    deadline = time.monotonic() + 120
    while len(pool._admit()) < len(pool._workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    return pool


def begun(log: Path) -> Counter[int]:
    return Counter(seed for _, seed, what in lines(log) if what == "reset")


@pytest.mark.slow
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


def test_no_actors_no_ray() -> None:
    with open_pool(diary(), RayConfig()) as pool:
        assert isinstance(pool, EnvPool)
