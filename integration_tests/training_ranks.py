"""Run under the ``deepspeed`` launcher: three updates at each ZeRO stage, through the trainer's own path.

deepspeed --num_accelerators 2 --no_local_rank training_ranks.py RECIPE.toml OUT
"""

import sys
from dataclasses import replace
from pathlib import Path

from agentr1_train.config import Recipe, load_recipe
from agentr1_train.trainer import train

STAGES = (0, 1, 2, 3)


def train_stages(recipe: Recipe, out: Path) -> list[Path]:
    """Train by the recipe at each ZeRO stage and return the run folders."""
    return [
        train(replace(recipe, run_dir=str(out / f"zero_{stage}"), engine=replace(recipe.engine, zero_stage=stage)))
        for stage in STAGES
    ]


if __name__ == "__main__":
    train_stages(load_recipe(Path(sys.argv[1])), Path(sys.argv[2]))
