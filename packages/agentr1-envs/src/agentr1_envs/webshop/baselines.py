"""Two policies to compare with, and their scores: the benchmark's rule, and chance. Neither knows the goal."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentr1_envs.agent_env import AgentEnv

WebShopPolicy = Callable[[str, Mapping[str, Any]], str]
"""Observation in mode "text" and info to the response."""

_SEPARATOR = " [SEP] "


@dataclass(frozen=True, slots=True)
class BaselineScore:
    """Means over episodes, in percent, as the benchmark reports them."""

    score: float
    success: float
    episodes: int


def rule_policy(observation: str, info: Mapping[str, Any]) -> str:
    """Search with the instruction, take the first product, buy it without options."""
    if info["page"] == "index":
        return f"search[{instruction_of(observation)}]"
    if info["page"] == "results":
        products = [name for name in _first_products(info["clickables"]) if name]
        return f"click[{products[0]}]" if products else "click[back to search]"
    return "click[buy now]"


def random_policy(seed: int) -> WebShopPolicy:
    """The instruction's search or one of the page's clickables, each with the same chance, on every page."""
    rng = np.random.default_rng(seed)

    def act(observation: str, info: Mapping[str, Any]) -> str:
        actions = [f"search[{instruction_of(observation)}]", *(f"click[{name}]" for name in info["clickables"])]
        return actions[int(rng.integers(len(actions)))]

    return act


def baseline_score(env: AgentEnv, policy: WebShopPolicy, task_ids: Iterable[str]) -> BaselineScore:
    """Play each task once with a policy; an episode cut by the step limit scores 0."""
    rewards: list[float] = []
    wins = 0
    for task_id in task_ids:
        observation, info = env.reset(options={"task_id": task_id})
        reward, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, info = env.step(policy(observation, info))
            over = terminated or truncated
        rewards.append(reward)
        wins += bool(info["success"])
    return BaselineScore(100 * float(np.mean(rewards)), 100 * wins / len(rewards), len(rewards))


def instruction_of(observation: str) -> str:
    """The instruction that every page but the last shows."""
    parts = observation.split(_SEPARATOR)
    return parts[parts.index("Instruction:") + 1]


def _first_products(clickables: Sequence[str]) -> Sequence[str]:
    return clickables[clickables.index("next >") + 1 :]
