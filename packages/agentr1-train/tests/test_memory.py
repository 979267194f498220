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
"""Updates before the slope is taken: caches of kernels, modules and the allocator fill first."""


@pytest.mark.slow
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
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=550, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    resident = numpy.array([float(line) for line in done.stdout.split()])
    assert len(resident) == 200
    assert resident[0] > 100  # MB: it is a whole trainer that is measured
    slope = numpy.polyfit(numpy.arange(SETTLED, 200), resident[SETTLED:], 1)[0] * 100
    print("slope", slope, resident[::10].round(2).tolist())
    assert slope < 1.0, f"{slope:.2f} MB a hundred updates: {resident[::10].round(1).tolist()}"
