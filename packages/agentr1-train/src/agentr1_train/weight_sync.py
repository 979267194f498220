"""Carries the policy's weights from the engine to the sampler, tensor by tensor, and counts the versions.

Every rank has a sampler and every rank reads the whole stream: under ZeRO-3 the engine gathers buckets of parameters on
all ranks together. Names are those of the transformers model, without our wrapper's prefix; tied weights come once, and
adapters not at all: they are merged.
"""

from collections.abc import Iterator

from torch import Tensor

from agentr1_train.engine.deepspeed import DeepSpeedEngine
from agentr1_train.lora import has_adapter, is_adapter, merged
from agentr1_train.sampler.base import Sampler

WRAPPER = "model."
"""Where ``PolicyModel`` keeps the transformers model."""


def policy_weights(engine: DeepSpeedEngine) -> Iterator[tuple[str, Tensor]]:
    """Yield (transformers name, whole tensor) of a policy's engine. A collective call; each is valid until the next.

    Adapters are merged into the weights they belong to: their tensors, which are small, are gathered first.
    """
    weights = engine.named_weights()
    if has_adapter(engine.module):
        adapters = {name: tensor.clone() for name, tensor in engine.named_weights(is_adapter)}
        weights = merged(engine.module, adapters, weights)
    for name, tensor in weights:
        yield name.removeprefix(WRAPPER), tensor


def copy_weights(engine: DeepSpeedEngine) -> list[tuple[str, Tensor]]:
    """Return a copy of all weights in the host's memory, as ``policy_weights`` yields them. A collective call."""
    return [(name, tensor.to("cpu", copy=True)) for name, tensor in policy_weights(engine)]


def sync_weights(engine: DeepSpeedEngine, sampler: Sampler, version: int | None = None) -> int:
    """Load the engine's weights into the sampler and return the new policy version. A collective call.

    Args:
        engine: of a ``PolicyModel``.
        sampler: made from the same model.
        version: the version to set, when a run resumes; by default one more than the sampler has.
    """
    if version is None:
        version = sampler.policy_version + 1
    sampler.load_weights(version, policy_weights(engine))
    return version
