"""Puts the environments into Gymnasium's registry; imported once, by the package itself.

The environments keep the order of reset and step themselves and the tests run Gymnasium's checker on each, so they are
registered without its two wrappers: `gymnasium.make` then gives the environment itself.
"""

from typing import Any, cast

import gymnasium

from agentr1_envs.errors import SettingError, did_you_mean

ENTRY_POINTS = {
    "agentr1/ALFWorld-v0": "agentr1_envs.alfworld.env:alfworld",
    "agentr1/ALFWorldTools-v0": "agentr1_envs.alfworld.tools_env:alfworld_tools",
    "agentr1/GSM8K-v0": "agentr1_envs.gsm8k:gsm8k",
    "agentr1/GSM8KOracle-v0": "agentr1_envs.gsm8k:gsm8k_oracle",
    "agentr1/HotpotQA-v0": "agentr1_envs.hotpotqa:hotpotqa",
    "agentr1/PaperSearch-v0": "agentr1_envs.paper_search:paper_search",
    "agentr1/Remote-v0": "agentr1_envs.remote.env:remote",
    "agentr1/ToolEnv-v0": "agentr1_envs.tool_task:tool_task",
    "agentr1/WebShop-v0": "agentr1_envs.webshop.env:webshop",
}
"""Id to entry point; nothing behind an entry point is imported before the environment is made."""

VECTOR_ENTRY_POINTS = "agentr1_envs.vector.entry_points"
"""The module that makes vectors of threads; it has an attribute for every id."""


def register_envs() -> None:
    """Register every environment that is not registered yet."""
    for env_id, entry_point in ENTRY_POINTS.items():
        if env_id not in gymnasium.registry:
            cast("Any", gymnasium).register(
                env_id,
                entry_point,
                vector_entry_point=f"{VECTOR_ENTRY_POINTS}:{env_id}",
                order_enforce=False,
                disable_env_checker=True,
            )


def check_registered(env_id: str) -> None:
    """Raise SettingError, with the nearest id, for one that nobody registered; of package:id Gymnasium finds out."""
    register_envs()
    if ":" not in env_id and env_id not in gymnasium.registry:
        raise SettingError(
            f"{env_id!r} is no registered environment; here are: {', '.join(ENTRY_POINTS)}."
            f"{did_you_mean(env_id, ENTRY_POINTS)}"
        )
