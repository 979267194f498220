"""A whole run samples with vLLM: it learns as under transformers, and vLLM's weights follow the trainer's.

Runs in the environment that ``make setup-vllm`` makes. The quickstart under vLLM is in ``integration_tests``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from agentr1_train.config import recipe_from_dict
from agentr1_train.tracking import read_events
from agentr1_train.trainer import train
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),  # those of vLLM and of what it imports
    pytest.mark.timeout(900),
]


def test_a_run_learns_and_vllm_follows(
    symbol_recipe: Callable[..., dict[str, Any]], symbol_model_dir: Path, tmp_path: Path
) -> None:
    config = AutoConfig.from_pretrained(symbol_model_dir)
    config.update({"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32})
    config.update({"tie_word_embeddings": True})
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(symbol_model_dir).save_pretrained(tmp_path / "model")
    success = {}
    for name in ("hf", "vllm"):
        table = symbol_recipe(
            run_dir=str(tmp_path / name),
            updates=12,
            optimizer={"lr": 3e-3},  # at which neither run settles on one answer by chance
            model={"path": str(tmp_path / "model")},
            rollout={"groups": 4, "group_size": 16},
            sampler={"name": name} | ({"kv_cache_gb": 0.1} if name == "vllm" else {}),
            evaluation={"episodes": 32},
        )
        events = read_events(train(recipe_from_dict(table)) / "events.jsonl")
        updates = [event for event in events if event["kind"] == "update"]
        evaluations = [event["eval/success"] for event in events if event["kind"] == "evaluation"]
        assert [event["policy/version"] for event in updates] == list(range(1, 13))
        # What vLLM says it sampled from is the policy of this very update: its weights were replaced each time.
        assert max(event["mismatch/kl"] for event in updates) < 1e-6
        success[name] = evaluations
    assert success["vllm"][0] == success["hf"][0]  # greedy, on the same weights
    assert success["vllm"][-1] >= success["vllm"][0] + 0.3
    assert success["vllm"][-1] == pytest.approx(success["hf"][-1], abs=0.1)
