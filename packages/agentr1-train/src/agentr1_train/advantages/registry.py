"""The estimators by name. An unknown name raises; nothing falls back to zeros."""

from collections.abc import Sequence

from agentr1_train.advantages.base import Credit, CreditSettings, CreditTrajectory, Estimator
from agentr1_train.advantages.grpo import grpo
from agentr1_train.advantages.reinforce import reinforce
from agentr1_train.advantages.rloo import rloo
from agentr1_train.advantages.step_gae import step_gae
from agentr1_train.errors import UnknownNameError

ESTIMATORS: dict[str, Estimator] = {
    "step_gae": Estimator(step_gae, reads=("gamma", "lam", "bootstrap_truncated"), needs_critic=True),
    "reinforce": Estimator(reinforce, reads=("gamma",)),
    "grpo": Estimator(grpo, by_group=True),
    "rloo": Estimator(rloo, by_group=True),
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
