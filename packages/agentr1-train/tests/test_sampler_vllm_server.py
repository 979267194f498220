"""vLLM as a server of its own: started by a run, joined by another, given weights through a folder; with an adapter.

Runs in the environment that ``make setup-vllm`` makes.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agentr1_train import distributed
from agentr1_train.config import SamplerConfig
from agentr1_train.endpoint_config import EndpointConfig
from agentr1_train.errors import ConfigError, RunFailedError
from agentr1_train.policy import token_logprobs
from agentr1_train.sampler.base import Prompt, SamplingParams
from agentr1_train.sampler.openai import OpenAISampler
from agentr1_train.sampler.vllm import VLLMSampler
from agentr1_train.sampler.vllm_server import VLLMServerSampler
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


@pytest.fixture(scope="module")
def server(model_dir: Path) -> Iterator[VLLMServerSampler]:
    device = distributed.init("cpu")
    one = VLLMServerSampler(str(model_dir), SamplerConfig(name="vllm_server", max_batch=8, kv_cache_gb=0.2), device)
    yield one
    process = one._process
    one.close()
    assert process is not None
    assert process._process.returncode is not None  # it does not outlive the run


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


def test_weights_travel_through_a_folder_and_logprobs_equal_the_trainers(
    server: VLLMServerSampler, model_dir: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    for temperature in (1.0, 0.7, 0.0):
        assert largest_error(model, server, temperature) < 1e-3
    before = server.checksums()
    torch.manual_seed(1)
    for version in (1, 2):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        assert largest_error(model, server) > 1e-2  # the server does not have them yet
        server.load_weights(version, ((name, p.data) for name, p in model.named_parameters()))
        assert server.policy_version == version
        assert server._call("/weight_info") == {"weight_version": str(version)}
        assert largest_error(model, server) < 1e-3
    after = server.checksums()
    readable = {name for name in before if name.endswith(("norm.weight", "embed_tokens.weight"))}  # others are packed
    assert len(readable) >= 6
    assert all(before[name] != after[name] for name in readable)


def test_noise_ends_and_caps(server: VLLMServerSampler) -> None:
    prompts = make_prompts()
    together = server.sample(prompts, SamplingParams())
    assert together[0].ids != together[-1].ids  # equal prompts, unequal keys
    assert [server.sample([prompt], SamplingParams())[0].ids for prompt in prompts] == [one.ids for one in together]
    stop_ids = tuple(range(0, 320, 7))
    for done in server.sample(make_prompts(60), SamplingParams(stop_ids=stop_ids)):
        inside = [token in stop_ids for token in done.ids]
        assert not any(inside[:-1])
        assert inside[-1] == (done.finish_reason == "stop")
    caps = server.sample([Prompt((5, 6), (i,), n) for i, n in enumerate((0, 1, 9, 4))], SamplingParams())
    assert [len(done.ids) for done in caps] == [len(done.logprobs) for done in caps] == [0, 1, 9, 4]


def test_the_openai_sampler_asks_vllms_own_endpoint(server: VLLMServerSampler, model_dir: Path) -> None:
    """Token ids in, text out; vLLM counts what it read and wrote as it was."""
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    endpoint = EndpointConfig(base_url=f"{server._url}/v1", model=str(model_dir), api="completions", price_output=2e6)
    asked, greedy = OpenAISampler(endpoint, tokenizer), SamplingParams(0.0)
    prompts = [Prompt(tuple(tokenizer.encode(f"What is {n} times 7?")), (n,), 12) for n in range(6)]
    try:
        theirs = server.sample(prompts, greedy)
        for mine, done in zip(asked.sample(prompts, greedy), theirs, strict=True):
            # The untrained model writes broken characters, of which vLLM leaves some out at both ends.
            said, decoded = (text.replace("\ufffd", "") for text in (mine.text or "", tokenizer.decode(done.ids)))
            assert said == decoded
            assert mine.finish_reason == done.finish_reason
        assert asked.usage["requests"] == len(prompts)
        assert asked.usage["input_tokens"] == sum(len(prompt.ids) for prompt in prompts)
        assert asked.usage["output_tokens"] == sum(len(done.ids) for done in theirs)
        assert asked.usage["cost"] == pytest.approx(2 * asked.usage["output_tokens"])
    finally:
        asked.close()


def test_a_running_server_is_joined(server: VLLMServerSampler, model_dir: Path) -> None:
    settings = SamplerConfig(name="vllm_server", server_url=server._url + "/")
    second = VLLMServerSampler(str(model_dir), settings, "cpu")
    prompts = make_prompts()
    ids = [[done.ids for done in one.sample(prompts, SamplingParams())] for one in (server, second)]
    assert ids[0] == ids[1]
    second.close()
    assert server.sample(prompts[:1], SamplingParams())  # whoever joins does not end it
    with pytest.raises(ConfigError, match="exceed the 512 tokens"):
        server.sample([Prompt((1,) * 500, (0,), 13)], SamplingParams())


@pytest.mark.parametrize("kind", [VLLMSampler, VLLMServerSampler])
def test_an_adapter_is_sampled_with(kind: Any, model_dir: Path, adapter_dir: Path) -> None:
    peft = pytest.importorskip("peft")
    base = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    adapted = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_dir), adapter_dir).eval()
    settings = SamplerConfig(max_batch=8, kv_cache_gb=0.2, lora=str(adapter_dir))
    sampler = kind(str(model_dir), settings, distributed.init("cpu"))
    try:
        assert largest_error(adapted, sampler) < 1e-3
        assert largest_error(base, sampler) > 1e-2
    finally:
        sampler.close()


def test_a_server_that_is_killed_ends_the_run_in_one_error(server: VLLMServerSampler) -> None:
    """The last of the tests that share a server."""
    assert server.sample(make_prompts()[:1], SamplingParams())
    assert server._process is not None
    os.kill(server._process._process.pid, signal.SIGKILL)
    server._process._process.wait(60)
    with pytest.raises(RunFailedError, match="vLLM's server ended with exit code -9"):
        server.sample(make_prompts()[:1], SamplingParams())


def test_a_server_that_cannot_sample_is_ended_and_says_why(tiny_model_dir: Path) -> None:
    """Heads of width 8 have no kernel on a CPU, which vLLM finds out at the first request."""
    with pytest.raises(ConfigError, match=r"(did not start|cannot sample)(.|\n)*Error"):
        VLLMServerSampler(str(tiny_model_dir), SamplerConfig(name="vllm_server", kv_cache_gb=0.2), "cpu")
    assert not [line for line in Path("/proc").glob("[0-9]*/cmdline") if str(tiny_model_dir) in read(line)]


def read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
