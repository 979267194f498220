"""The estimators a recipe may name. An unknown name raises; nothing falls back to zeros."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from agentr1_train.advantages.base import CreditSettings, Estimator
from agentr1_train.advantages.bilevel_gae import bilevel_gae
from agentr1_train.advantages.dr_grpo import dr_grpo
from agentr1_train.advantages.gigpo import gigpo
from agentr1_train.advantages.grpo import grpo
from agentr1_train.advantages.layered import layered
from agentr1_train.advantages.records import Credit, CreditTrajectory, TokenCredit
from agentr1_train.advantages.reinforce import reinforce
from agentr1_train.advantages.reinforce_pp import reinforce_pp, reinforce_pp_baseline
from agentr1_train.advantages.remax import remax
from agentr1_train.advantages.rloo import rloo
from agentr1_train.advantages.step_gae import step_gae
from agentr1_train.advantages.token_gae import token_gae
from agentr1_train.errors import UnknownNameError

_GAE = ("gamma", "lam", "bootstrap_truncated")

PART_ESTIMATORS: Mapping[str, Estimator] = {
    "reinforce": Estimator(reinforce, reads=("gamma",)),
    "reinforce_pp": Estimator(reinforce_pp, reads=("gamma",)),
    "reinforce_pp_baseline": Estimator(reinforce_pp_baseline, by_group=True),
    "grpo": Estimator(grpo, by_group=True),
    "dr_grpo": Estimator(dr_grpo, by_group=True),
    "rloo": Estimator(rloo, by_group=True),
    "gigpo": Estimator(gigpo, reads=("gamma", "step_weight", "divide_by_std")),
}
"""Those that read nothing but rewards, and so may estimate a stream of ``layered``."""


def _layered(
    trajectories: Sequence[CreditTrajectory],
    *,
    layer_weights: Mapping[str, float],
    layer_estimator: str,
    **settings: float,
) -> Credit:
    part = PART_ESTIMATORS[layer_estimator]
    compute = cast("Callable[..., Credit]", part.compute)
    read = {name: settings[name] for name in part.reads}
    return layered(trajectories, weights=layer_weights, estimator=lambda streams: compute(streams, **read))


ESTIMATORS: Mapping[str, Estimator] = {
    "step_gae": Estimator(step_gae, reads=_GAE, needs_critic=True),
    "token_gae": Estimator(token_gae, reads=_GAE, needs_critic=True, by_token=True),
    "bilevel_gae": Estimator(bilevel_gae, reads=(*_GAE, "gamma_step", "lam_step"), needs_critic=True, by_token=True),
    **PART_ESTIMATORS,
    "remax": Estimator(remax, needs_greedy=True),
    "layered": Estimator(
        _layered,
        reads=("layer_weights", "layer_estimator", "gamma", "step_weight", "divide_by_std"),
        reads_parts=True,
    ),
}


def get_estimator(name: str) -> Estimator:
    """Return the estimator of this name.

    Raises:
        UnknownNameError: there is none.
    """
    if name not in ESTIMATORS:
        raise UnknownNameError("estimator", name, ESTIMATORS)
    return ESTIMATORS[name]


def estimate(trajectories: Sequence[CreditTrajectory], settings: CreditSettings) -> Credit | TokenCredit:
    """Assign credit to every step of the whole batch, with the estimator that ``settings`` names.

    Raises:
        UnknownNameError: no such estimator.
        ConfigError: the trajectories lack what it reads: the critic's values, a greedy rollout, a reward stream.
    """
    estimator = get_estimator(settings.estimator)
    return estimator.compute(trajectories, **{name: getattr(settings, name) for name in estimator.reads})
