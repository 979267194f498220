"""Ranks and devices: one process without a launcher, and two under the real one."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from agentr1_train import distributed
from agentr1_train.errors import DeviceError


def test_a_single_process_is_a_world_of_one() -> None:
    assert distributed.init("cpu") == torch.device("cpu")
    assert distributed.init("cpu") == torch.device("cpu")  # again changes nothing
    assert (distributed.rank(), distributed.world_size(), distributed.is_main()) == (0, 1, True)
    distributed.barrier()
    assert distributed.all_gather_object("x") == ["x"]
    assert distributed.broadcast_object("x") == "x"
    assert distributed.all_reduce({"a": 2.0}) == {"a": 2.0}


def test_two_ranks_see_each_other(two_ranks: list[dict[str, Any]]) -> None:
    first, second = (seen["collectives"] for seen in two_ranks)
    assert [first["rank"], second["rank"]] == [0, 1]
    assert [first["main"], second["main"]] == [True, False]
    assert [first["local"], second["local"]] == [(0, 2), (1, 2)]
    assert first["gathered"] == second["gathered"] == [{"rank": 0, "text": ""}, {"rank": 1, "text": "x"}]
    assert first["from_one"] == second["from_one"] == "rank 1"
    assert first["sum"] == second["sum"] == {"b": 3.0, "a": 0.2}
    assert first["max"] == second["max"] == {"b": 1.0}
    assert first["min"] == second["min"] == {"b": 0.0}


def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    with pytest.raises(DeviceError, match="legal values are auto, cpu, cuda"):
        distributed.resolve_device("gpu")
    if torch.cuda.is_available():
        monkeypatch.setenv("LOCAL_RANK", str(torch.cuda.device_count()))
        with pytest.raises(DeviceError, match="at most one rank a device"):
            distributed.resolve_device("cuda")
        monkeypatch.setenv("DS_ACCELERATOR", "cpu")
        assert distributed.resolve_device("auto") == torch.device("cpu")
        with pytest.raises(DeviceError, match="DS_ACCELERATOR=cpu"):
            distributed.resolve_device("cuda")
    else:
        assert distributed.resolve_device("auto") == torch.device("cpu")
        with pytest.raises(DeviceError, match="sees no CUDA device"):
            distributed.resolve_device("cuda")


def test_cores_are_divided_by_the_ranks_on_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = len(os.sched_getaffinity(0))
    for name, value, threads in [("LOCAL_SIZE", "1", cores), ("LOCAL_WORLD_SIZE", str(10 * cores), 1)]:
        monkeypatch.setenv(name, value)
        assert distributed.default_threads() == threads
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert distributed.default_threads() == 3


def test_ranks_without_a_launcher_do_not_leak(tmp_path: Path) -> None:
    """A process started by a run of one rank is a world of its own, too."""
    script = tmp_path / "nested.py"
    script.write_text(
        "import subprocess, sys\n"
        "from agentr1_train import distributed\n"
        "distributed.init('cpu')\n"
        "print(distributed.world_size())\n"
        "if len(sys.argv) == 1: subprocess.run([sys.executable, __file__, 'again'], check=True)\n"
        "distributed.shutdown()\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=True)
    assert sorted(done.stdout.split()) == ["1", "1"]
