"""It learns, and only from the right credit: a two-step task with one reward at its end.

See ``symbol_env``: 90 % needs both symbols repeated, and the first step is paid only through the second. With returns
permuted over the batch, or within groups, the same runs must stay near chance (25 % for who says only legal symbols).
"""

from collections.abc import Callable
from typing import Any

import pytest
from agentr1_train.config import recipe_from_dict
from agentr1_train.tracking import read_events
from agentr1_train.trainer import train

UPDATES = 45


def best_success(make: Callable[..., dict[str, Any]], preset: str, seed: int, permute: str = "none") -> float:
    """The best mean success over five updates in a row, of 320 episodes together."""
    recipe = recipe_from_dict(
        make(
            seed=seed,
            updates=UPDATES,
            rollout={"groups": 4, "group_size": 16},
            # The bonus keeps a policy that is nearly sure of itself from being thrown about by its rare mistakes.
            algorithm={"preset": preset, "permute_returns": permute, "entropy_coef": 0.02},
            optimizer={"lr": 5e-3},
            tracking={"rollouts_every": 0},
            checkpoint={"export": False},
        )
    )
    events = [event for event in read_events(train(recipe) / "events.jsonl") if event["kind"] == "update"]
    assert len(events) == UPDATES
    successes = [event["rollout/success"] for event in events]
    return max(sum(successes[at : at + 5]) / 5 for at in range(UPDATES - 4))


@pytest.mark.parametrize("preset", ["grpo", "rloo", "reinforce", "ppo"])
def test_each_preset_learns(preset: str, symbol_recipe) -> None:
    assert best_success(symbol_recipe, preset, seed=0) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("preset", ["grpo", "rloo", "reinforce", "ppo"])
def test_each_preset_learns_from_other_seeds(preset: str, seed: int, symbol_recipe) -> None:
    assert best_success(symbol_recipe, preset, seed) >= 0.9


@pytest.mark.parametrize(("preset", "permute"), [("grpo", "batch"), ("grpo", "group"), ("ppo", "batch")])
def test_with_permuted_returns_nothing_is_learned(preset: str, permute: str, symbol_recipe) -> None:
    assert best_success(symbol_recipe, preset, 0, permute) <= 0.4
