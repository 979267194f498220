"""Host memory stays flat: 200 updates with critic, reference, checkpoints and evaluations leave nothing behind."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import tomli_w

HERE = Path(__file__).parent

SETTLED = 100
"""Updates before the slope is taken: caches of kernels, modules and the allocator fill first.

Taken between medians: a page that the system reclaims for a moment would bend a fitted line.
"""


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_two_hundred_updates_cost_no_memory(symbol_recipe: Any, tmp_path: Path) -> None:
    table = symbol_recipe(
        updates=200,
        algorithm={"preset": "ppo", "kl": "loss"},
        evaluation={"episodes": 4, "every": 20},
        checkpoint={"every": 20, "export": False},
        tracking={"tensorboard": True},
    )
    path = tmp_path / "recipe.toml"
    path.write_text(tomli_w.dumps(table), "utf-8")
    settings = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "memory_script.py"), str(path)]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=1400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    resident = numpy.array([float(line) for line in done.stdout.split()])
    assert len(resident) == 200
    assert resident[0] > 100  # MB: it is a whole trainer that is measured
    early, late = (numpy.median(part) for part in (resident[SETTLED : SETTLED + 20], resident[-20:]))
    slope = (late - early) / (200 - SETTLED - 20) * 100
    assert slope < 1.0, f"{slope:.2f} MB a hundred updates: {resident[::10].round(1).tolist()}"
