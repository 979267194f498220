"""What a vector is asked for, checked and spread over its environments. Every refusal says what is legal."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex, cast

import gymnasium
import numpy as np
from gymnasium.error import InvalidAction
from gymnasium.vector import AutoresetMode
from gymnasium.vector import utils as vector_utils

from agentr1_envs.errors import SettingError, require_choice
from agentr1_envs.spaces import Text

Options = Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None
"""Reset options for all environments, or a list of one for each."""
MASK = "reset_mask"


def autoreset_mode_of(given: AutoresetMode | str) -> AutoresetMode:
    """The mode by its name or as it is."""
    if isinstance(given, AutoresetMode):
        return given
    return AutoresetMode(require_choice("autoreset_mode", given, [mode.value for mode in AutoresetMode]))


def check_limit(name: str, seconds: float | None) -> float | None:
    """A time limit that is positive, or None for no limit."""
    if seconds is not None and not seconds > 0:
        raise SettingError(f"{name}={seconds} must be above 0 seconds, or None for no limit.")
    return seconds


def one_for_each(name: str, given: Sequence[Any], num_envs: int) -> Sequence[Any]:
    """A list with one entry for each environment."""
    if len(given) != num_envs:
        raise SettingError(f"{name} holds {len(given)} entries; a vector of {num_envs} environments needs {num_envs}.")
    return given


def seeds_of(given: SupportsIndex | Sequence[int | None] | None, num_envs: int) -> Sequence[int | None]:
    """An int seeds environment i with ``given + i``; a list is taken as it is."""
    if given is None:
        return [None] * num_envs
    if isinstance(given, SupportsIndex) and not isinstance(given, np.ndarray):
        first = seed_of(given)
        return [None if first is None else first + index for index in range(num_envs)]
    return one_for_each("seed", [seed_of(seed) for seed in cast("Sequence[int | None]", given)], num_envs)


def seed_of(given: SupportsIndex | None) -> int | None:
    """A seed as an int."""
    seed = None if given is None else operator.index(given)
    if seed is not None and seed < 0:
        raise SettingError(f"seed={seed} must be at least 0, or None.")
    return seed


def resets_of(given: Options, num_envs: int) -> tuple[Sequence[int], Sequence[Mapping[str, Any] | None]]:
    """Which environments are to be reset, and the options of each environment."""
    if not isinstance(given, Mapping):
        each = [None] * num_envs if given is None else list(given)
        return range(num_envs), one_for_each("options", each, num_envs)
    shared = {name: value for name, value in given.items() if name != MASK}
    each = [shared or None] * num_envs
    if MASK not in given:
        return range(num_envs), each
    mask = np.asarray(given[MASK])
    if mask.dtype != np.bool_ or mask.shape != (num_envs,) or not mask.any():
        raise SettingError(
            f"options[{MASK!r}] must be a bool array of shape ({num_envs},) with at least one True; "
            f"got {mask.tolist()} of {mask.dtype}."
        )
    return [int(index) for index in np.flatnonzero(mask)], each


def actions_of(given: Any, batched: gymnasium.Space[Any], single: gymnasium.Space[Any], num_envs: int) -> list[Any]:
    """One action for each environment."""
    if isinstance(given, str) and isinstance(single, Text | gymnasium.spaces.Text):
        raise InvalidAction(f"step() takes a tuple of {num_envs} actions, one for each environment; got one str.")
    actions: list[Any] = list(cast("Any", vector_utils).iterate(batched, given))
    if len(actions) != num_envs:
        raise InvalidAction(f"step() takes one action for each of {num_envs} environments; got {len(actions)}.")
    check_actions(actions, single)
    return actions


def check_actions(actions: Iterable[Any], single: gymnasium.Space[Any]) -> None:
    """Refuse what is no action of a text environment; a stranger's environment answers for itself."""
    if isinstance(single, Text):
        for action in actions:
            if action not in single:
                raise InvalidAction(f"{action!r:.80} is no action of {single}; an action is the whole response, a str.")
