import inspect
from dataclasses import dataclass
from typing import Any

from agentr1_envs.signatures import takes


@dataclass(frozen=True)
class Limits:
    steps: int = 3
    seconds: float = 1.0


@takes(Limits, without=("seconds",), system="full", steps=5)
def made(split: str = "train", **settings: Any) -> dict[str, Any]:
    return {"split": split, **settings}


def test_settings_stand_in_the_signature_with_the_defaults_that_hold_here() -> None:
    assert {name: item.default for name, item in inspect.signature(made).parameters.items()} == {
        "split": "train",
        "steps": 5,
        "system": "full",
    }


def test_what_is_accepted_does_not_change() -> None:
    assert made(seconds=2.0) == {"split": "train", "seconds": 2.0}
