"""A full disk and exhausted memory are known from other errors, and from what an error came from."""

import subprocess
import sys
from pathlib import Path

import pytest
from agentr1_train.exhausted import is_disk_full, is_out_of_memory


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


WRITERS = """
import resource, signal, sys
import torch
from agentr1_train.exhausted import is_disk_full
from safetensors.torch import save_file

big = torch.zeros(1 << 20)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
for write in (
    lambda: open(sys.argv[1] + "/plain", "wb").write(bytes(1 << 22)),
    lambda: torch.save(big, sys.argv[1] + "/torch"),
    lambda: save_file({"big": big}, sys.argv[1] + "/safetensors"),
):
    try:
        write()
    except Exception as error:
        print(is_disk_full(error))
"""


def test_a_limit_on_file_sizes_is_known_from_what_each_writer_raises(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITERS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True"] * 3, done.stdout + done.stderr
