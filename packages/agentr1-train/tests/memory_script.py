"""Trains by a recipe and prints the process's memory after each update, in MB: ``python memory_script.py RECIPE``.

The loop is that of ``trainer.train``; what is measured is what it leaves behind.
"""

import gc
import os
import sys
from pathlib import Path

from agentr1_train.config import load_recipe
from agentr1_train.trainer import open_run

PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20


def resident() -> float:
    gc.collect()  # else the collector's own rhythm is measured
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_MB


def main(path: Path) -> None:
    with open_run(load_recipe(path)) as run:
        for update in range(run.recipe.updates):
            collected = run.roll_out(update)
            experience = run.assign_credit(collected, update)
            run.learn(experience, update)
            run.write_down(collected, experience, update)
            run.checkpoint_or_evaluate()
            print(resident(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
