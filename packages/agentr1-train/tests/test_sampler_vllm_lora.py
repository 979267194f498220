"""vLLM samples with a LoRA adapter on top of the model.

Runs in the environment that ``make setup-vllm`` makes.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agentr1_train import distributed
from agentr1_train.config import SamplerConfig
from agentr1_train.policy import token_logprobs
from agentr1_train.sampler.base import Prompt, SamplingParams
from agentr1_train.sampler.vllm import VLLMSampler
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),  # those of vLLM and of what it imports
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def model_dir(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with heads as wide as vLLM's CPU kernels ask for (32), its output layer tied to the input's."""
    config = AutoConfig.from_pretrained(tiny_model_dir)
    config.update({"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32})
    config.update({"initializer_range": 0.1, "tie_word_embeddings": True, "max_position_embeddings": 512})
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("vllm_model")
    LlamaForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapter_dir(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA adapter that changes what the model says."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(2)
    settings = peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"])
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(model_dir), settings)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    folder = tmp_path_factory.mktemp("adapter")
    model.save_pretrained(folder)
    return folder


def make_prompts(max_tokens: int = 12) -> list[Prompt]:
    rng = np.random.default_rng(0)
    ids = [tuple(int(x) for x in rng.integers(3, 300, size=rng.integers(1, 40))) for _ in range(6)]
    return [Prompt(row, (7, 0, i), max_tokens) for i, row in enumerate([*ids, ids[0]])]


def largest_error(model: Any, sampler: Any, temperature: float = 1.0) -> float:
    """Over all sampled tokens, between what the sampler says and what the model computes in float32."""
    prompts, errors = make_prompts(), []
    for prompt, done in zip(prompts, sampler.sample(prompts, SamplingParams(temperature)), strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prompt.ids, *done.ids]])).logits[0, len(prompt.ids) - 1 : -1]
        computed, _ = token_logprobs(logits, torch.tensor(done.ids), temperature or 1.0)
        errors.append(float((computed - torch.tensor(done.logprobs)).abs().max()))
    return max(errors)


def test_an_adapter_is_sampled_with(model_dir: Path, adapter_dir: Path) -> None:
    peft = pytest.importorskip("peft")
    base = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    adapted = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_dir), adapter_dir).eval()
    settings = SamplerConfig(name="vllm", max_batch=8, kv_cache_gb=0.2, lora=str(adapter_dir))
    sampler = VLLMSampler(str(model_dir), settings, distributed.init("cpu"))
    try:
        assert largest_error(adapted, sampler) < 1e-3
        assert largest_error(base, sampler) > 1e-2
    finally:
        sampler.close()
