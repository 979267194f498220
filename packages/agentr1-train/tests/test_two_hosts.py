"""Training on two hosts as the guide tells it: a hostfile, and ``deepspeed --no_ssh`` on each host, by hand.

The hosts are two network namespaces with a cable between them, where the machine lets us make those, each with a Ray
node of its own; and two addresses of the loopback device, which every Linux has.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from agentr1_train.tracking import read_events

HERE = Path(__file__).resolve().parent
SCRIPTS = Path(sys.executable).parent
Make = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Host:
    """Where one rank runs."""

    address: str
    device: str
    """Network device that the ranks meet over."""
    prefix: tuple[str, ...] = ()
    """Put before a command to run it there."""


def environment(host: Host) -> dict[str, str]:
    mine = {name: text for name, text in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return mine | {
        "DS_ACCELERATOR": "cpu",
        "GLOO_SOCKET_IFNAME": host.device,
        "OMP_NUM_THREADS": "1",
        "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(HERE),
    }


def train_on(hosts: Sequence[Host], recipe: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Write recipe and hostfile, start the launcher on each host, and return the run's events without their times."""
    folder.mkdir()
    (folder / "recipe.toml").write_text(tomli_w.dumps(recipe | {"run_dir": str(folder / "run")}), "utf-8")
    (folder / "hostfile").write_text("".join(f"{host.address} slots=1\n" for host in hosts), "utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(SCRIPTS / "deepspeed"), "--hostfile", str(folder / "hostfile"), "--no_ssh"]
    command += ["--master_addr", hosts[0].address, "--master_port", str(port)]
    with contextlib.ExitStack() as stack:
        started = []
        for rank, host in enumerate(hosts):
            log = stack.enter_context((folder / f"host_{rank}.log").open("w"))
            words = [*host.prefix, *command, "--node_rank", str(rank), "--module", "agentr1_train"]
            process = subprocess.Popen(
                [*words, str(folder / "recipe.toml")], env=environment(host), stdout=log, stderr=log
            )
            stack.callback(process.kill)  # nothing where it has ended
            started.append(process)
        codes = [process.wait(timeout=800) for process in started]
    assert codes == [0, 0], "".join((folder / f"host_{rank}.log").read_text()[-3000:] for rank in (0, 1))
    events = read_events(folder / "run" / "events.jsonl")
    return [{name: value for name, value in event.items() if not name.startswith("time/")} for event in events]


def numbers(event: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in event.items() if isinstance(value, int | float)}


def run_quietly(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, timeout=60).returncode == 0


def skip_or_fail(reason: str) -> None:
    """In continuous integration nothing is skipped."""
    pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)


@pytest.fixture
def namespaces() -> Iterator[list[Host]]:
    """Two network namespaces joined by a cable; with them ends whatever was started in them."""
    names = [f"agentr1-{os.getpid()}-{index}" for index in (0, 1)]
    devices = [f"agr{os.getpid() % 100_000}{side}" for side in "ab"]
    hosts = [Host(f"10.77.0.{index + 1}", devices[index], ("ip", "netns", "exec", names[index])) for index in (0, 1)]
    try:
        if shutil.which("ip") is None or not all(run_quietly("ip", "netns", "add", name) for name in names):
            skip_or_fail("network namespaces need the program ip and root")
        cable = ("ip", "link", "add", devices[0], "netns", names[0], "type", "veth")
        if not run_quietly(*cable, "peer", "name", devices[1], "netns", names[1]):
            skip_or_fail("this machine has no virtual cables (veth)")
        for name, host in zip(names, hosts, strict=True):
            assert run_quietly("ip", "-n", name, "address", "add", f"{host.address}/24", "dev", host.device)
            assert run_quietly("ip", "-n", name, "link", "set", host.device, "up")
            assert run_quietly("ip", "-n", name, "link", "set", "lo", "up")
        yield hosts
    finally:
        for name in names:
            left = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            run_quietly("ip", "netns", "delete", name)


def start_ray(hosts: Sequence[Host], folder: Path) -> str:
    """Start a Ray node on each host and return the cluster's address."""
    head = f"{hosts[0].address}:6379"
    for index, host in enumerate(hosts):
        joins = ["--head", "--port", "6379", "--temp-dir", str(folder)] if index == 0 else ["--address", head]
        words = [*host.prefix, str(SCRIPTS / "ray"), "start", *joins, "--node-ip-address", host.address]
        words += ["--num-cpus", "2", "--object-store-memory", "80000000", "--disable-usage-stats"]
        words += ["--include-dashboard", "false"] if index == 0 else []
        done = subprocess.run(words, env=environment(host), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    return head


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.timeout(1800)
def test_two_hosts_train_as_one(
    symbol_recipe: Make, launch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same events from two ranks of one host and from a rank on each of two."""
    recipe = symbol_recipe(checkpoint={"every": 1}, evaluation={"episodes": 4})
    alone = tmp_path / "alone.toml"
    alone.write_text(tomli_w.dumps(recipe | {"run_dir": str(tmp_path / "one_host")}), "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    done = launch("--module", "agentr1_train", alone, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    expected = [
        {name: value for name, value in event.items() if not name.startswith("time/")}
        for event in read_events(tmp_path / "one_host" / "events.jsonl")
    ]
    loopback = [Host("127.0.0.1", "lo"), Host("127.0.0.2", "lo")]
    assert train_on(loopback, recipe, tmp_path / "loopback") == expected
    assert (tmp_path / "loopback" / "run" / "model" / "config.json").is_file()


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.timeout(1800)
def test_two_namespaces_with_a_ray_node_each(symbol_recipe: Make, namespaces: list[Host], tmp_path: Path) -> None:
    """Ranks and actors on both hosts; the events are those of the same ranks without Ray."""
    pytest.importorskip("ray")
    recipe = symbol_recipe(evaluation={"episodes": 4}, rollout={"groups": 4})
    expected = train_on(namespaces, recipe, tmp_path / "plain")
    address = start_ray(namespaces, Path(f"/tmp/agr-{os.getpid()}"))
    try:
        ray = {"actors": 1, "address": address, "start_timeout_s": 300.0}
        over_ray = train_on(namespaces, recipe | {"ray": ray}, tmp_path / "over_ray")
    finally:
        shutil.rmtree(f"/tmp/agr-{os.getpid()}", ignore_errors=True)
    assert [event["kind"] for event in over_ray] == [event["kind"] for event in expected]
    for one, two in zip(expected, over_ray, strict=True):
        assert numbers(one) == pytest.approx(numbers(two), rel=1e-4, abs=1e-6, nan_ok=True)
