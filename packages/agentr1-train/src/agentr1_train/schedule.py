"""How the learning rate falls over a run. Who applies it is the caller's business."""

import math
from typing import Literal

from agentr1_train.config import OptimizerConfig

Schedule = Literal["constant", "linear", "cosine"]


def learning_rate(base: float, update: int, updates: int, optimizer: OptimizerConfig) -> float:
    """Return the learning rate of an update: linear warm-up, then the schedule down to 0 at ``updates``."""
    warmup = optimizer.warmup_updates
    if update < warmup:
        return base * (update + 1) / warmup
    return scheduled(base, (update - warmup) / max(1, updates - warmup), optimizer.schedule)


def scheduled(base: float, progress: float, schedule: Schedule) -> float:
    """Return the learning rate after ``progress`` in [0, 1] of the way from ``base`` down to 0; constant stays."""
    progress = min(1.0, progress)
    if schedule == "constant":
        return base
    if schedule == "linear":
        return base * (1 - progress)
    return base * (1 + math.cos(math.pi * progress)) / 2
