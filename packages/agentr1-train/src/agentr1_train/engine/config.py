"""Writes DeepSpeed's configuration from the recipe. Pure: imports neither torch nor DeepSpeed."""

from typing import Any

from agentr1_train.config import EngineConfig
from agentr1_train.errors import ConfigError

BUCKET_ELEMENTS = 50_000_000
"""Elements that ranks exchange at a time; a larger parameter goes alone."""


def deepspeed_config(engine: EngineConfig, max_grad_norm: float, trainable: bool = True) -> dict[str, Any]:
    """Return the dictionary that ``deepspeed.initialize`` takes.

    The caller owns gradient accumulation (any number of backwards, then one step), the learning rate and AdamW;
    DeepSpeed owns sharding, reduction, precision and, from ZeRO-1 on, clipping.

    Args:
        engine: ZeRO stage and precision.
        max_grad_norm: 0 turns clipping off.
        trainable: False for a frozen model, which DeepSpeed only shards.

    Raises:
        ConfigError: offload or half precision without ZeRO. In half precision DeepSpeed then adds up gradients in half
            precision, and takes a step of AdamW on zeros while it sets up, so that every later bias correction is one
            step off.
    """
    if trainable and engine.dtype != "fp32" and engine.zero_stage == 0:
        raise ConfigError(
            f"engine.dtype = {engine.dtype!r} needs engine.zero_stage of 1 or more, for float32 gradients and a "
            "float32 copy of the weights. Stage 1 computes the same and shards only the optimizer."
        )
    # DeepSpeed's own bucket, half a billion elements, takes 2 GB in fp32 on every rank, however small the model.
    buckets = {"reduce_bucket_size": BUCKET_ELEMENTS, "allgather_bucket_size": BUCKET_ELEMENTS}
    zero: dict[str, Any] = {"stage": engine.zero_stage, "overlap_comm": False, **buckets}
    if engine.zero_stage == 3:
        zero |= {
            # A smaller parameter stays whole on every rank: norms and biases cost more to gather than to keep.
            "stage3_param_persistence_threshold": 10_000,
            "stage3_gather_16bit_weights_on_model_save": True,
        }
    if trainable and engine.offload_optimizer:
        if engine.zero_stage == 0:
            raise ConfigError(
                "engine.offload_optimizer = true needs engine.zero_stage of 1 or more: without ZeRO the optimizer "
                "is torch's own, beside the weights."
            )
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    config: dict[str, Any] = {
        # Rows are packed by us; DeepSpeed only checks that these two agree, so both say one sample a rank.
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,  # torch's fused AdamW runs on the host too, and needs no compiler
        "steps_per_print": None,
        "wall_clock_breakdown": False,
    }
    if trainable:
        config["managed_gradient_accumulation"] = False
        config["gradient_clipping"] = max_grad_norm
    if engine.dtype == "bf16":
        config["bf16"] = {"enabled": True, "check_grad_overflow": True}
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    elif engine.dtype == "fp16":
        config["fp16"] = {"enabled": True, "loss_scale": 0, "initial_scale_power": 16}
    return config
