"""A full disk and exhausted memory are known by what libraries really raise, under limits of the operating system."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from agentr1_train.exhausted import is_disk_full, is_out_of_memory

pytestmark = pytest.mark.once

WRITE = """
import resource, sys
import pyarrow as pa, pyarrow.parquet as pq, torch
from safetensors.torch import save_file
from agentr1_train.exhausted import is_disk_full, is_out_of_memory

def with_python(path):
    with open(path, "wb") as file:
        file.write(bytes(4_000_000))

writers = {
    "python": with_python,
    "torch": lambda path: torch.save(torch.rand(1_000_000), path),
    "safetensors": lambda path: save_file({"a": torch.rand(1_000_000)}, path),
    "parquet": lambda path: pq.write_table(pa.table({"a": torch.rand(1_000_000).numpy()}), path),
}
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
for name, write in writers.items():
    try:
        write(f"{sys.argv[1]}/{name}")
    except Exception as error:
        print(name, is_disk_full(error), is_out_of_memory(error), repr(error)[:200])
"""


def test_every_writer_that_a_run_uses(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WRITE, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = {line.split()[0]: line.split()[1:3] for line in done.stdout.splitlines()}
    assert found == {name: ["True", "False"] for name in ("python", "torch", "safetensors", "parquet")}, done.stdout


def test_other_errors_are_neither(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as seen:
        (tmp_path / "absent").read_text()
    assert not is_disk_full(seen.value)
    assert not is_out_of_memory(seen.value)
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))


def test_what_an_error_came_from_counts() -> None:
    error = RuntimeError("while closing")
    assert not is_disk_full(error)
    error.__cause__ = OSError(28, "No space left on device")
    assert is_disk_full(error)


SAMPLING = """
import resource, sys
from agentr1_train import cli

def starved(arguments):
    import torch
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 16 * 2**20, resource.RLIM_INFINITY))
    torch.zeros(2**30)

cli.COMMANDS["train"] = starved
sys.exit(cli.main(["train"]))
"""


def test_memory_that_ends_outside_a_micro_batch_is_one_line_too() -> None:
    """As while it samples: what torch's allocator raises under a real limit, through the command's own door."""
    done = subprocess.run([sys.executable, "-c", SAMPLING], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("agentr1-train: out of memory: ")
    assert "Lower sampler.max_batch" in line


MEMORY = """
import resource, sys
from dataclasses import replace
sys.path.insert(0, sys.argv[1])
import ranks_script as script
import torch
from agentr1_train.batch import Row, pack
from agentr1_train.errors import OutOfMemoryError

engine, _ = script.make_engine(sys.argv[2], 0)
rows = [Row((5,) * 1500, (7,) * 400, (0, at), old_logp=(-5.0,) * 400, sampler_logp=(-5.0,) * 400, advantage=1.0,
            weight=1e-3) for at in range(40)]
script.update(engine, rows[:1], budget=64)  # what the first pass allocates for good is there
before = script.weights_of(engine)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 96 * 2**20, resource.RLIM_INFINITY))
try:
    engine.forward_backward(pack(rows, 100_000), script.loss_of_policy)
    print("it fitted")
except OutOfMemoryError as error:
    print(error)
after = script.weights_of(engine)
print("same", all(torch.equal(before[name], after[name]) for name in before))
print("then", script.update(engine, rows[:4], budget=1900)["policy/tokens"])
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_AS"), reason="no limit on memory here")
def test_a_micro_batch_that_does_not_fit_is_one_line_and_smaller_ones_go_on(tiny_model_dir: Path) -> None:
    """A limit on the process's memory, a micro-batch of 76,000 tokens; under the same limit one of 1900 fits."""
    command = [sys.executable, "-c", MEMORY, str(Path(__file__).parent), str(tiny_model_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    said, same, then = done.stdout.strip().splitlines()
    assert said.startswith("micro-batch 0 of the policy (40 rows, 76000 tokens) does not fit into memory.")
    assert "Lower engine.micro_batch_tokens" in said
    assert same == "same True"
    assert then == "then 1600.0"
