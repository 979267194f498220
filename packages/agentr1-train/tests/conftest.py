"""Fixtures for the trainer's tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of shared data: ``AGENTR1_SHARED``, or ``shared`` beside the repository. Without it: skip, or fail in CI."""
    folder = Path(os.environ.get("AGENTR1_SHARED", Path(__file__).resolve().parents[4] / "shared"))
    if not folder.is_dir():
        message = f"no shared data at {folder}; set AGENTR1_SHARED"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return folder
