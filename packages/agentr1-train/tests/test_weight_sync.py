"""Weights travel whole, once each, under the transformers model's own names."""

from pathlib import Path
from typing import Any

import pytest
import torch
from agentr1_train import distributed
from agentr1_train.config import EngineConfig, OptimizerConfig
from agentr1_train.engine import deepspeed as engine_module
from agentr1_train.engine.deepspeed import DeepSpeedEngine
from agentr1_train.policy import PolicyModel
from agentr1_train.sampler.base import Prompt, SamplingParams
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.weight_sync import policy_weights, sync_weights
from transformers import LlamaForCausalLM


@pytest.mark.parametrize("stage", [0, 3])
def test_the_sampler_gets_what_was_trained(
    ranks_script: Any, tiny_model: Any, tiny_model_dir: Path, tiny_tokenizer: Any, stage: int
) -> None:
    engine, _ = ranks_script.make_engine(str(tiny_model_dir), stage)
    sampler = HFSampler(tiny_model, tiny_tokenizer)
    prompt = Prompt(ids=(5, 6, 7), key=(0,), max_tokens=8)
    before = sampler.sample([prompt], SamplingParams())[0]
    assert sync_weights(engine, sampler) == sampler.policy_version == 1
    assert sampler.sample([prompt], SamplingParams())[0] == before  # the same weights so far
    rows = ranks_script.evaluated(engine, ranks_script.all_rows())
    for _ in range(3):
        ranks_script.update(engine, rows, lr=1e-2)
    assert sync_weights(engine, sampler) == sampler.policy_version == 2
    trained = ranks_script.weights_of(engine)
    held = dict(tiny_model.named_parameters())
    assert trained.keys() == held.keys()
    assert all(torch.equal(trained[name], held[name]) for name in held)
    assert sampler.sample([prompt], SamplingParams())[0] != before
    assert sync_weights(engine, sampler, version=7) == sampler.policy_version == 7  # a resumed run


@pytest.mark.parametrize("stage", [0, 3])
def test_tied_weights_come_once(tiny_model: Any, stage: Any) -> None:
    tiny_model.config.tie_word_embeddings = True
    tied = LlamaForCausalLM(tiny_model.config)
    names = [name for name, _ in tied.named_parameters()]
    assert "lm_head.weight" not in names
    engine = DeepSpeedEngine(
        PolicyModel(tied), EngineConfig(zero_stage=stage), OptimizerConfig(), distributed.init("cpu")
    )
    assert [name for name, _ in policy_weights(engine)] == names


def test_sharded_weights_are_gathered_in_buckets(
    ranks_script: Any, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never all at once: a parameter outside the present bucket is not there."""
    engine, _ = ranks_script.make_engine(str(tiny_model_dir), 3)
    parameters = dict(engine.module.named_parameters())
    large = [name for name, parameter in parameters.items() if not parameter.ds_persist]
    assert len(large) >= 2
    monkeypatch.setattr(engine_module, "GATHER_ELEMENTS", 1)
    seen = {}
    for name, tensor in engine.named_weights():
        seen[name] = tensor.shape
        if name in large:
            assert not any(parameters[other].numel() for other in large if other != name)
    assert seen == {name: parameter.ds_shape for name, parameter in parameters.items()}


def test_every_rank_gets_the_whole(two_ranks: list[dict[str, Any]]) -> None:
    first, second = (seen["resume_3_fp32"]["weights"] for seen in two_ranks)
    assert first.keys() == second.keys() == two_ranks[0]["train_0"]["weights"].keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
