"""A full disk and exhausted memory are known from other errors, and from what an error came from."""

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
