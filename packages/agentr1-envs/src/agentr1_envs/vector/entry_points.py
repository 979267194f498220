"""What `gymnasium.make_vec` calls for a vector of threads.

Gymnasium calls the `vector_entry_point` of a registered id with the number of environments and the arguments, not with
the id. So every id is an attribute of this module: ``"agentr1_envs.vector.entry_points:agentr1/GSM8K-v0"`` names a
function that makes vectors of that id. Registering an id of your own with such a text gives it a vector too.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from agentr1_envs.errors import SettingError
from agentr1_envs.vector.thread_vector import TIMEOUT_S, ThreadVectorEnv


def thread_vector(
    env_id: str,
    /,
    num_envs: int = 1,
    *,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    reset_timeout_s: float | None = TIMEOUT_S,
    step_timeout_s: float | None = TIMEOUT_S,
    **env_kwargs: Any,
) -> ThreadVectorEnv:
    """A `ThreadVectorEnv` of `num_envs` environments of a registered id; `env_kwargs` are for `gymnasium.make`.

    Raises:
        SettingError: `num_envs` is below 1, or as for `ThreadVectorEnv`.
    """
    if num_envs < 1:
        raise SettingError(f"num_envs={num_envs} must be at least 1.")
    make = partial(gymnasium.make, env_id, **env_kwargs)
    return ThreadVectorEnv(
        [make] * num_envs,
        autoreset_mode=autoreset_mode,
        reset_timeout_s=reset_timeout_s,
        step_timeout_s=step_timeout_s,
    )


def __getattr__(name: str) -> Callable[..., ThreadVectorEnv]:
    if "-v" not in name:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(thread_vector, name)
