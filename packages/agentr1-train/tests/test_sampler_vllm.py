"""vLLM in the rank, the real one: what it says it sampled is what the trainer computes, before and after an update.

Runs in the environment that ``make setup-vllm`` makes. The server has a test of its own.
"""

import logging
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agentr1_train import distributed
from agentr1_train.config import EngineConfig, ModelConfig, OptimizerConfig, SamplerConfig
from agentr1_train.engine.deepspeed import DeepSpeedEngine
from agentr1_train.errors import ConfigError
from agentr1_train.policy import DTYPES, PolicyModel, load_model, token_logprobs
from agentr1_train.sampler.base import Prompt, SamplingParams, Sleeper
from agentr1_train.sampler.vllm import VLLMSampler
from agentr1_train.weight_sync import sync_weights
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),  # those of vLLM and of what it imports
    pytest.mark.timeout(900),
]
TOLERANCE = {"fp32": 1e-3, "bf16": 2e-2}
KINDS = [("fp32", True), ("bf16", False)]
"""Precision, and whether the output layer shares the input's weights."""


def make_model_dir(folder: Path, tiny_model_dir: Path, tied: bool) -> Path:
    """The tiny model with heads as wide as vLLM's CPU kernels ask for (32)."""
    config = AutoConfig.from_pretrained(tiny_model_dir)
    config.update({"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32})
    # Logits of about 1: bfloat16 rounds them to 1/256 of their size, here and there, and no sampler can be closer.
    config.update({"initializer_range": 0.04, "tie_word_embeddings": tied, "max_position_embeddings": 512})
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(folder)
    return folder


def make_prompts(count: int = 8, max_tokens: int = 12) -> list[Prompt]:
    rng = np.random.default_rng(0)
    ids = [tuple(int(x) for x in rng.integers(3, 300, size=rng.integers(1, 40))) for _ in range(count)]
    ids[1] = ids[0]
    return [Prompt(row, (7, 0, i), max_tokens) for i, row in enumerate(ids)]


def logprobs_of(model: Any, prompt: Prompt, ids: tuple[int, ...], temperature: float) -> torch.Tensor:
    """The trainer's: one forward over prompt and response, in the model's precision."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt.ids, *ids]]), use_cache=False).logits[0]
    return token_logprobs(logits[len(prompt.ids) - 1 : -1], torch.tensor(ids), temperature)[0]


def largest_error(model: Any, sampler: Any, temperature: float = 1.0) -> float:
    """Over all sampled tokens, between what the sampler says and what the model computes."""
    prompts = make_prompts()
    done = sampler.sample(prompts, SamplingParams(temperature))
    pairs = zip(prompts, done, strict=True)
    errors = [
        logprobs_of(model, prompt, one.ids, temperature or 1.0) - torch.tensor(one.logprobs) for prompt, one in pairs
    ]
    return max(float(error.abs().max()) for error in errors)


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: f"{kind[0]}-{'tied' if kind[1] else 'untied'}")
def kind(request: pytest.FixtureRequest) -> tuple[str, bool]:
    return request.param


@pytest.fixture(scope="module")
def model_dir(kind: tuple[str, bool], tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_dir(tmp_path_factory.mktemp("vllm_model"), tiny_model_dir, kind[1])


@pytest.fixture(scope="module")
def sampler(kind: tuple[str, bool], model_dir: Path) -> Iterator[VLLMSampler]:
    device = distributed.init("cpu")
    group = torch.distributed.group.WORLD
    state = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()
    threads = torch.set_num_threads
    one = VLLMSampler(str(model_dir), SamplerConfig(name="vllm", dtype=kind[0], max_batch=16, kv_cache_gb=0.2), device)
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()) == state
    assert torch.set_num_threads is threads
    yield one
    one.close()
    assert torch.distributed.group.WORLD is group  # the trainer's group outlives the engine


@pytest.fixture
def trainer(kind: tuple[str, bool], model_dir: Path) -> DeepSpeedEngine:
    """A policy's engine as a run has it, in the sampler's precision."""
    model = load_model(str(model_dir), ModelConfig(path=str(model_dir)), kind[0])
    settings = EngineConfig(dtype=kind[0], device="cpu", zero_stage=1)
    return DeepSpeedEngine(PolicyModel(model), settings, OptimizerConfig(), distributed.init("cpu"))


def test_logprobs_equal_the_trainers_before_and_after_an_update(
    kind: tuple[str, bool], sampler: VLLMSampler, trainer: DeepSpeedEngine
) -> None:
    model, tolerance = trainer.module.model, TOLERANCE[kind[0]]
    assert model.dtype == DTYPES[kind[0]]
    assert sync_weights(trainer, sampler) == sampler.policy_version
    for temperature in (1.0, 0.7, 0.0):
        assert largest_error(model, sampler, temperature) < tolerance
    before, version = sampler.checksums(), sampler.policy_version
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.03 * torch.randn_like(parameter))
    assert largest_error(model, sampler) > 5 * tolerance  # the sampler does not have them yet
    assert sync_weights(trainer, sampler) == sampler.policy_version == version + 1
    after = sampler.checksums()
    assert before.keys() == after.keys()
    changed = {name for name in before if before[name] != after[name]}
    readable = {name for name in before if name.endswith(("norm.weight", "embed_tokens.weight"))}  # others are packed
    assert len(readable) >= 6
    assert readable <= changed
    assert largest_error(model, sampler) < tolerance


def test_a_prompt_samples_the_same_alone_and_in_a_batch(sampler: VLLMSampler) -> None:
    prompts = make_prompts()
    together = sampler.sample(prompts, SamplingParams())
    assert together[0].ids != together[1].ids  # equal prompts, unequal keys
    for prompt, one in zip(prompts, together, strict=True):
        (alone,) = sampler.sample([prompt], SamplingParams())
        assert alone.ids == one.ids
    (longer,) = sampler.sample([Prompt(prompts[0].ids, prompts[0].key, 30)], SamplingParams())
    assert longer.ids[:12] == together[0].ids


def test_more_prompts_than_one_pass_reads(sampler: VLLMSampler) -> None:
    """Long ones, all at once: a prompt that is read in two pieces would end the engine on a CPU."""
    rng = np.random.default_rng(1)
    prompts = [Prompt(tuple(int(x) for x in rng.integers(3, 300, size=480)), (8, i), 4) for i in range(32)]
    assert all(1 <= len(done.ids) <= 4 for done in sampler.sample(prompts, SamplingParams()))


def test_top_p_keeps_the_nucleus_and_renormalises(kind: tuple[str, bool], sampler: VLLMSampler, trainer: Any) -> None:
    sync_weights(trainer, sampler)
    ids = (9, 8, 7, 6)
    drawn = sampler.sample([Prompt(ids, (1, i), 1) for i in range(60)], SamplingParams(1.0, 0.5))
    with torch.no_grad():
        probs = trainer.module.model(input_ids=torch.tensor([ids])).logits[0, -1].float().softmax(-1)
    best = probs.sort(descending=True).values
    mass = float(best[: int((best.cumsum(0) < 0.5).sum()) + 1].sum())
    assert len({one.ids for one in drawn}) > 3
    for one in drawn:
        expected = float(probs[one.ids[0]].log()) - np.log(mass)
        assert one.logprobs[0] == pytest.approx(expected, abs=2 * TOLERANCE[kind[0]])


def test_ends_and_caps(sampler: VLLMSampler, model_dir: Path) -> None:
    stop_ids = tuple(range(0, 320, 7))
    for done in sampler.sample(make_prompts(max_tokens=60), SamplingParams(stop_ids=stop_ids)):
        inside = [token in stop_ids for token in done.ids]
        assert not any(inside[:-1])
        assert inside[-1] == (done.finish_reason == "stop")
    caps = sampler.sample([Prompt((5, 6), (i,), n) for i, n in enumerate((0, 1, 9, 4))], SamplingParams())
    assert [len(done.ids) for done in caps] == [len(done.logprobs) for done in caps] == [0, 1, 9, 4]
    free = sampler.sample([Prompt((5, 6, i), (3, i), 100) for i in range(6)], SamplingParams())
    assert all(len(done.ids) == 100 for done in free)  # the model's own end token ends nothing
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    stopped = sampler.sample([Prompt((5, 6, i), (3, i), 100) for i in range(6)], SamplingParams(stop=("a",)))
    assert any(done.finish_reason == "stop" for done in stopped)
    for done, whole in zip(stopped, free, strict=True):
        assert done.ids == whole.ids[: len(done.ids)]
        assert ("a" in tokenizer.decode(list(done.ids))) == (done.finish_reason == "stop")
        assert "a" not in tokenizer.decode(list(done.ids[:-1]))


def test_a_new_thread_counts_torch_s_threads(sampler: VLLMSampler) -> None:
    """A run samples in a thread of its own. There OpenMP begins with its own number of threads, which need not be the
    run's ``engine.threads``; vLLM plans with the one and works with the other, and its kernels refuse that.
    """
    prompts, params, before = make_prompts(), SamplingParams(0.0), torch.get_num_threads()
    want = sampler.sample(prompts, params)
    torch.set_num_threads(before + 1)
    try:
        with ThreadPoolExecutor(1) as thread:
            got = thread.submit(sampler.sample, prompts, params).result()
    finally:
        torch.set_num_threads(before)
    assert [one.ids for one in got] == [one.ids for one in want]


def test_sleep_is_logged_on_a_cpu(sampler: VLLMSampler, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(sampler, Sleeper)
    with caplog.at_level(logging.INFO):
        sampler.sleep()
    assert "stays awake" in caplog.text
    assert sampler.sample(make_prompts(2), SamplingParams())


def test_refusals(sampler: VLLMSampler, tiny_model_dir: Path) -> None:
    with pytest.raises(ConfigError, match="exceed the 512 tokens"):
        sampler.sample([Prompt((1,) * 500, (0,), 13)], SamplingParams())
    version = sampler.policy_version
    with pytest.raises(ConfigError, match="no such tensor"):
        sampler.load_weights(9, [("model.nonsense", torch.zeros(3))])
    assert sampler.policy_version == version
