"""DeepSpeed's configuration says what the recipe says."""

import pytest
from agentr1_train.config import EngineConfig
from agentr1_train.engine.config import deepspeed_config
from agentr1_train.errors import ConfigError


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_stage_and_clipping(stage: int) -> None:
    config = deepspeed_config(EngineConfig(zero_stage=stage), max_grad_norm=0.7)  # type: ignore[arg-type]
    assert config["zero_optimization"]["stage"] == stage
    assert config["gradient_clipping"] == 0.7
    assert config["managed_gradient_accumulation"] is False
    assert "gradient_accumulation_steps" not in config
    assert not {"bf16", "fp16", "optimizer", "scheduler"} & set(config)


def test_precision() -> None:
    bf16 = deepspeed_config(EngineConfig(zero_stage=1, dtype="bf16"), 1.0)
    assert bf16["bf16"]["enabled"]
    assert bf16["bf16"]["check_grad_overflow"]
    assert bf16["data_types"]["grad_accum_dtype"] == "fp32"
    fp16 = deepspeed_config(EngineConfig(zero_stage=2, dtype="fp16"), 1.0)
    assert fp16["fp16"]["enabled"]
    assert fp16["fp16"]["loss_scale"] == 0


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision_needs_sharding(dtype: str) -> None:
    engine = EngineConfig(zero_stage=0, dtype=dtype)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"needs engine\.zero_stage of 1 or more"):
        deepspeed_config(engine, 1.0)
    assert dtype in deepspeed_config(engine, 0.0, trainable=False)


def test_a_frozen_model_accumulates_nothing() -> None:
    config = deepspeed_config(EngineConfig(zero_stage=3), 1.0, trainable=False)
    assert not {"managed_gradient_accumulation", "gradient_clipping"} & set(config)


def test_the_optimizer_is_offloaded_under_zero_only() -> None:
    config = deepspeed_config(EngineConfig(zero_stage=2, offload_optimizer=True), 1.0)
    assert config["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    frozen = deepspeed_config(EngineConfig(zero_stage=3, offload_optimizer=True), 1.0, trainable=False)
    assert "offload_optimizer" not in frozen["zero_optimization"]
    with pytest.raises(ConfigError, match=r"offload_optimizer = true needs engine\.zero_stage of 1 or more"):
        deepspeed_config(EngineConfig(offload_optimizer=True), 1.0)
