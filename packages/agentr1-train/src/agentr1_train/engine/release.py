"""Lets go of an engine of DeepSpeed, which would otherwise keep its weights, gradients and optimizer until the end.

The engine's own ``destroy`` removes its hooks. Under ZeRO-3 two places of the process still hold every model that was
ever made; both are emptied here of what is ours to empty.
"""

import inspect
from typing import Any


def release(engine: Any) -> None:
    """Undo what keeps a ``deepspeed.DeepSpeedEngine`` alive; the collector frees it when nobody refers to it any more.

    Other engines of the process go on.
    """
    from deepspeed.runtime.zero import parameter_offload

    module = engine.module
    engine.destroy()
    stack = parameter_offload.FWD_MODULE_STACK  # the models at the root of each forward
    stack[:] = [kept for kept in stack if kept is not module]
    for method in vars(parameter_offload.PartitionedParameterCoordinator).values():
        _forget_calls(method)


def _forget_calls(method: Any) -> None:
    """Empty the memory of a method that is cached, under DeepSpeed's timing wrapper: its keys are models."""
    if inspect.isfunction(method):
        cached: Any = inspect.getclosurevars(method).nonlocals.get("func")
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()
