"""The section ``algorithm`` of a recipe. The meaning of names: ``presets.py``, ``advantages/``, ``losses.py``."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class AlgorithmConfig:
    """Credit and objective. ``None`` takes the preset's value."""

    preset: str = "grpo"
    """A published algorithm: values for all fields below that are not given."""
    estimator: str | None = None
    """Who gets credit."""
    ratio: Literal["token", "step", "trajectory"] | None = None
    """Over what the importance ratio is averaged before it is clipped."""
    objective: Literal["clip", "cispo", "reinforce"] | None = None
    """What is maximised: PPO's clipped surrogate, CISPO's clipped weight, or the plain log-probability."""
    aggregation: Literal["token_mean", "step_mean", "trajectory_mean", "token_sum_norm"] | None = None
    """How tokens are averaged into one loss."""
    clip_low: float | None = None
    """The ratio is clipped at 1 - this."""
    clip_high: float | None = None
    """The ratio is clipped at 1 + this."""
    dual_clip: float | None = None
    """Bound c on the loss of negative advantages; 0: off."""
    norm_length: int | None = None
    """Constant length of ``token_sum_norm``."""
    gamma: float | None = None
    """Discount of a step; of a token under ``token_gae`` and ``bilevel_gae``."""
    lam: float | None = None
    """GAE's lambda, of a step; of a token under ``token_gae`` and ``bilevel_gae``."""
    gamma_step: float | None = None
    """``bilevel_gae``: discount of a step."""
    lam_step: float | None = None
    """``bilevel_gae``: GAE's lambda of a step."""
    bootstrap_truncated: bool | None = None
    """Bootstrap a truncated trajectory on V(final observation)."""
    step_weight: float | None = None
    """``gigpo``: weight of the comparison with steps in the same state."""
    divide_by_std: bool | None = None
    """``gigpo``: divide by the standard deviation, or by 1."""
    layer_weights: dict[str, float] | None = None
    """``layered``: weight of each reward stream; ``sem`` is computed here, the others are ``info["reward/<name>"]``."""
    layer_estimator: str | None = None
    """``layered``: the estimator of each stream."""
    kl: Literal["none", "reward", "loss"] | None = None
    """Where KL to the frozen start of the run goes."""
    kl_form: Literal["k1", "k2", "k3"] | None = None
    """Estimator of the KL in the loss."""
    kl_coef: float | None = None
    """Coefficient of the KL."""
    kl_target: float | None = None
    """Above 0: the coefficient adapts towards this KL (Ziegler et al. 2019)."""
    kl_stop: float | None = None
    """Above 0: the update's epochs end once k3 to the old policy passes it."""
    entropy_coef: float | None = None
    """Bonus on the entropy of the policy."""
    value_coef: float | None = None
    """Coefficient of the critic's loss."""
    value_clip: float | None = None
    """Clip of the value change; 0: off."""
    mismatch: Literal["truncate", "mask", "none"] = "truncate"
    """Correction of sampler against trainer: truncated importance weight, mask, or none."""
    mismatch_cap: float = 2.0
    """Bound of the truncated weight."""
    mismatch_low: float = 0.5
    """Below it a token is masked."""
    mismatch_high: float = 5.0
    """Above it a token is masked."""
    overlong_share: float | None = None
    """Share of ``rollout.max_response_tokens``, at its end, over which a response is charged 0 to 1; 0: off (DAPO)."""
    flat_groups: Literal["keep", "drop", "resample"] | None = None
    """Groups whose returns are all equal: kept, left out, or replaced by other seeds (DAPO). Counted either way."""
    resample_rounds: int | None = None
    """Times that flat groups are replaced in one update; those still missing then are missing."""
    permute_returns: Literal["none", "batch", "group"] = "none"
    """A control: trajectories exchange their rewards over the batch, or within each group; nothing is learned."""
