"""The schedule of the learning rate, in closed form."""

import math
from typing import Any

import pytest
from agentr1_train.config import OptimizerConfig
from agentr1_train.schedule import learning_rate, scheduled


def test_the_learning_rate_warms_up_and_follows_its_schedule() -> None:
    def rates(**settings: Any) -> list[float]:
        return [learning_rate(1.0, update, 8, OptimizerConfig(**settings)) for update in range(8)]

    assert rates() == [1.0] * 8
    assert rates(warmup_updates=4)[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates(schedule="linear") == pytest.approx([1 - update / 8 for update in range(8)])
    assert rates(schedule="linear", warmup_updates=4)[4:] == pytest.approx([1.0, 0.75, 0.5, 0.25])
    assert rates(schedule="cosine") == pytest.approx([(1 + math.cos(math.pi * u / 8)) / 2 for u in range(8)])
    assert learning_rate(1.0, 8, 8, OptimizerConfig(schedule="cosine")) == pytest.approx(0.0)


def test_a_schedule_ends_at_zero_and_stays_there() -> None:
    assert [scheduled(2.0, progress, "linear") for progress in (0, 0.25, 1, 7)] == [2.0, 1.5, 0.0, 0.0]
    assert scheduled(2.0, 0.5, "cosine") == pytest.approx(1.0)
    assert scheduled(2.0, 9, "constant") == 2.0
