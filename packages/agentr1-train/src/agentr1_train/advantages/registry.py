"""The estimators a recipe may name. An unknown name raises; nothing falls back to zeros.

``token_gae``, ``bilevel_gae``, ``remax`` and ``layered`` are functions beside these without a name here: they read
values at every token, a greedy rollout or reward streams, which the trainer does not collect.
"""

from collections.abc import Sequence

from agentr1_train.advantages.base import Credit, CreditSettings, CreditTrajectory, Estimator
from agentr1_train.advantages.dr_grpo import dr_grpo
from agentr1_train.advantages.gigpo import gigpo
from agentr1_train.advantages.grpo import grpo
from agentr1_train.advantages.reinforce import reinforce
from agentr1_train.advantages.reinforce_pp import reinforce_pp, reinforce_pp_baseline
from agentr1_train.advantages.rloo import rloo
from agentr1_train.advantages.step_gae import step_gae
from agentr1_train.errors import UnknownNameError

ESTIMATORS: dict[str, Estimator] = {
    "step_gae": Estimator(step_gae, reads=("gamma", "lam", "bootstrap_truncated"), needs_critic=True),
    "reinforce": Estimator(reinforce, reads=("gamma",)),
    "reinforce_pp": Estimator(reinforce_pp, reads=("gamma",)),
    "reinforce_pp_baseline": Estimator(reinforce_pp_baseline, by_group=True),
    "grpo": Estimator(grpo, by_group=True),
    "dr_grpo": Estimator(dr_grpo, by_group=True),
    "rloo": Estimator(rloo, by_group=True),
    "gigpo": Estimator(gigpo, reads=("gamma",)),
}


def get_estimator(name: str) -> Estimator:
    """Return the estimator of this name.

    Raises:
        UnknownNameError: there is none.
    """
    if name not in ESTIMATORS:
        raise UnknownNameError("estimator", name, ESTIMATORS)
    return ESTIMATORS[name]


def estimate(trajectories: Sequence[CreditTrajectory], settings: CreditSettings) -> Credit:
    """Assign credit to every step of the whole batch, with the estimator that ``settings`` names.

    Raises:
        UnknownNameError: no such estimator.
        ConfigError: the estimator needs a critic and the trajectories carry no values.
    """
    estimator = get_estimator(settings.estimator)
    return estimator.compute(trajectories, **{name: getattr(settings, name) for name in estimator.reads})
