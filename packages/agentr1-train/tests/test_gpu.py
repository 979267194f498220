"""What only a CUDA device can show: trees by its attention kernels, sampling, half precision, offload, vLLM's sleep.

``make test-gpu`` runs it. The same parts are tested on a CPU elsewhere; here is one small test for each path that a CPU
does not have. Tolerances leave room for kernels that add in another order.
"""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from agentr1_train import distributed
from agentr1_train.batch import pack, split_tokens
from agentr1_train.config import EngineConfig, ModelConfig, OptimizerConfig, SamplerConfig, recipe_from_dict
from agentr1_train.engine.deepspeed import DeepSpeedEngine
from agentr1_train.losses import LossOutput
from agentr1_train.policy import load_policy, token_logprobs
from agentr1_train.sampler.base import Prompt, SamplingParams
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.vllm import VLLMSampler
from agentr1_train.tracking import read_events
from agentr1_train.trainer import train
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # those of CUDA builds of torch, DeepSpeed and vLLM
    pytest.mark.timeout(900),
]
UPDATES = 3


def one_pass(path: Path, rows: list[Any], packing: Any, dtype: str, loss_of: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of all trained tokens by row, and the gradient of all parameters as one vector."""
    policy = load_policy(ModelConfig(path=str(path)), dtype, packing=packing).to("cuda")
    batches = [batch.to(torch.device("cuda")) for batch in pack(rows, 400, packing=packing)]
    outputs = [policy(batch) for batch in batches]
    losses = [loss_of(output, batch).loss for output, batch in zip(outputs, batches, strict=True)]
    torch.stack(losses).sum().backward()
    spans = split_tokens(batches, [logp for logp, _ in outputs], len(rows))
    found = [parameter.grad for parameter in policy.parameters()]
    assert all(gradient is not None for gradient in found)
    vector = torch.cat([gradient.float().flatten().cpu() for gradient in found if gradient is not None])
    return torch.tensor([value for span in spans for value in span]), vector


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_trees_are_the_same_function_as_rows(dtype: str, tiny_model_dir: Path, ranks_script: Any) -> None:
    """In bf16 both are as far from float32 as its rounding."""
    rows, loss_of = ranks_script.all_rows(), ranks_script.loss_of_policy
    policy = load_policy(ModelConfig(path=str(tiny_model_dir)))
    batches = pack(rows, 400)
    with torch.no_grad():
        spans = split_tokens(batches, [policy(batch)[0] for batch in batches], len(rows))
    rows = [dataclasses.replace(row, old_logp=span, sampler_logp=span) for row, span in zip(rows, spans, strict=True)]
    assert pack(rows, 400, packing="tree")[0].segments
    want = one_pass(tiny_model_dir, rows, "rows", "fp32", loss_of)
    in_tree = one_pass(tiny_model_dir, rows, "tree", dtype, loss_of)
    assert want[1].norm() > 1e-2
    if dtype == "fp32":
        for found, expected in zip(in_tree, want, strict=True):
            assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()
        return
    in_rows = one_pass(tiny_model_dir, rows, "rows", dtype, loss_of)
    for found, rounded, expected in zip(in_tree, in_rows, want, strict=True):
        assert (found - expected).norm() <= 2 * (rounded - expected).norm()


def prompts_for(count: int = 9, max_tokens: int = 12) -> list[Prompt]:
    """Prompts of unequal length, the first two alike."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(1, 40, (count,), generator=generator).tolist()
    ids = [tuple(torch.randint(3, 300, (size,), generator=generator).tolist()) for size in sizes]
    return [Prompt(row, (7, 0, at), max_tokens) for at, row in enumerate([ids[0], *ids[:-1]])]


def largest_error(model: Any, sampler: Any, temperature: float = 1.0) -> float:
    """Over all sampled tokens, between what the sampler says and one forward of the model."""
    prompts, errors = prompts_for(), []
    for prompt, done in zip(prompts, sampler.sample(prompts, SamplingParams(temperature)), strict=True):
        row = torch.tensor([[*prompt.ids, *done.ids]], device=model.device)
        with torch.no_grad():
            logits = model(input_ids=row, use_cache=False).logits[0, len(prompt.ids) - 1 : -1].cpu()
        computed, _ = token_logprobs(logits, torch.tensor(done.ids), temperature or 1.0)
        errors.append(float((computed - torch.tensor(done.logprobs)).abs().max()))
    return max(errors)


def test_the_hf_sampler_says_what_the_model_computes_on_a_cpu(tiny_model: Any, tiny_model_dir: Path) -> None:
    own = LlamaForCausalLM.from_pretrained(tiny_model_dir)
    sampler = HFSampler(own, AutoTokenizer.from_pretrained(tiny_model_dir), max_batch=4, device="cuda")
    assert {parameter.device.type for parameter in own.parameters()} == {"cuda"}
    for temperature in (1.0, 0.7, 0.0):
        assert largest_error(tiny_model, sampler, temperature) < 1e-3
    first, second = sampler.sample(prompts_for(), SamplingParams())[:2]
    assert first.ids != second.ids  # equal prompts, unequal keys
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in tiny_model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    assert largest_error(tiny_model, sampler) > 1e-2  # the sampler does not have them yet
    sampler.load_weights(1, ((name, parameter.data) for name, parameter in tiny_model.named_parameters()))
    assert largest_error(tiny_model, sampler) < 1e-3


def make_engine(path: Path, **settings: Any) -> DeepSpeedEngine:
    engine = EngineConfig(device="cuda", packing="rows", micro_batch_tokens=64, **settings)
    device = distributed.init("cuda")
    return DeepSpeedEngine(load_policy(ModelConfig(path=str(path)), engine.dtype), engine, OptimizerConfig(), device)


def three_updates(engine: DeepSpeedEngine, script: Any) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    """What three updates of the same rows reported, and the weights after them."""
    rows = script.evaluated(engine, script.all_rows())
    return [script.update(engine, rows) for _ in range(UPDATES)], script.weights_of(engine)


@pytest.fixture(scope="module")
def exact(tiny_model_dir: Path, ranks_script: Any) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    """In float32, everything on the device."""
    return three_updates(make_engine(tiny_model_dir, zero_stage=1), ranks_script)


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize(("dtype", "off"), [("bf16", 0.05), ("fp16", 0.02)])
def test_half_precision_follows_float32(
    dtype: Any, off: float, stage: Any, exact: Any, tiny_model_dir: Path, ranks_script: Any
) -> None:
    reports, weights = three_updates(make_engine(tiny_model_dir, zero_stage=stage, dtype=dtype), ranks_script)
    assert {tensor.dtype for tensor in weights.values()} == {{"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]}
    assert [report["skipped"] for report in reports] == [0.0] * UPDATES
    norms = [report["grad_norm"] for report in exact[0]]
    assert [report["grad_norm"] for report in reports] == pytest.approx(norms, rel=off)


@pytest.mark.parametrize("stage", [2, 3])
def test_a_step_that_overflows_in_fp16_is_left_out_and_the_scale_lowered(
    stage: Any, tiny_model_dir: Path, ranks_script: Any
) -> None:
    """A gradient that fits into fp16 once it is scaled by a few powers of two less."""
    engine = make_engine(tiny_model_dir, zero_stage=stage, dtype="fp16")

    def loss(output: Any, batch: Any) -> LossOutput:
        return LossOutput(output[0].sum() * 50.0, {"policy/tokens": torch.tensor(1.0)})

    before, steps = ranks_script.weights_of(engine), []
    while not steps or steps[-1]["skipped"]:
        engine.forward_backward(pack(ranks_script.all_rows(), 64), loss)
        steps.append(engine.optim_step(1e-3) | {"scale": float(engine._engine.optimizer.loss_scale)})
        after = ranks_script.weights_of(engine)
        assert any(not torch.equal(before[name], after[name]) for name in before) == (not steps[-1]["skipped"])
        assert len(steps) < 20
    assert len(steps) > 1
    assert math.isfinite(steps[-1]["grad_norm"])
    assert steps[-1]["scale"] < steps[0]["scale"]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_an_offloaded_optimizer_takes_the_same_steps(
    stage: Any, exact: Any, tiny_model_dir: Path, ranks_script: Any
) -> None:
    engine = make_engine(tiny_model_dir, zero_stage=stage, offload_optimizer=True)
    assert engine._engine.zero_cpu_offload() if stage < 3 else engine._engine.zero_offload_optimizer()
    reports, weights = three_updates(engine, ranks_script)
    moments = [value for state in engine._engine.optimizer.optimizer.state.values() for value in state.values()]
    assert {value.device.type for value in moments if value.dim()} == {"cpu"}
    norms = [report["grad_norm"] for report in exact[0]]
    assert [report["grad_norm"] for report in reports] == pytest.approx(norms, rel=1e-3)
    for name, want in exact[1].items():  # each moves by 1e-5 a step, in the direction of its gradient's sign
        assert (weights[name] - want).abs().mean() < 1e-6, name


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_run_learns_and_resumes(dtype: str, symbol_recipe: Callable[..., dict[str, Any]]) -> None:
    """The whole trainer: environment, hf sampler, prefix trees, DeepSpeed, checkpoint, export."""

    def table(updates: int) -> dict[str, Any]:
        return symbol_recipe(
            updates=updates,
            rollout={"groups": 4, "group_size": 16},
            algorithm={"preset": "grpo", "entropy_coef": 0.02},
            optimizer={"lr": 5e-3},
            engine={"device": "cuda", "dtype": dtype, "zero_stage": 2, "packing": "tree"},
            sampler={"dtype": dtype},
            evaluation={"episodes": 32},
        )

    folder = train(recipe_from_dict(table(30)))
    assert train(recipe_from_dict(table(32)), resume=True) == folder
    events = read_events(folder / "events.jsonl")
    updates = [event for event in events if event["kind"] == "update"]
    assert [event["step"] for event in updates] == list(range(1, 33))
    assert max(event["mismatch/kl"] for event in updates) < {"fp32": 1e-6, "bf16": 5e-2}[dtype]
    successes = [event["rollout/success"] for event in updates]
    best = max(sum(successes[at : at + 5]) / 5 for at in range(len(successes) - 4))
    assert best >= 0.6  # chance is 25 %, for who says only legal symbols
    assert LlamaForCausalLM.from_pretrained(folder / "model").num_parameters() > 0


def test_vllm_sleeps_gives_its_memory_back_and_wakes(tiny_model_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    config = AutoConfig.from_pretrained(tiny_model_dir)
    config.update({"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64})
    # Logits of about 1: bfloat16 rounds them to 1/256 of their size, here and there, and no sampler can be closer.
    config.update({"initializer_range": 0.04, "max_position_embeddings": 512})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(tmp_path)
    settings = SamplerConfig(name="vllm", dtype="bf16", max_batch=16, gpu_memory=0.3)
    sampler = VLLMSampler(str(tmp_path), settings, distributed.init("cuda"))
    try:
        assert largest_error(model, sampler) < 2e-2
        awake, total = torch.cuda.mem_get_info()
        sampler.sleep()
        asleep, _ = torch.cuda.mem_get_info()
        assert asleep - awake > 0.1 * total  # the cache's memory, most of its share
        assert largest_error(model, sampler) < 2e-2  # woken by prompts, with its weights
        sampler.sleep()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.03 * torch.randn_like(parameter))
        sampler.load_weights(1, ((name, parameter.data) for name, parameter in model.named_parameters()))
        assert sampler.policy_version == 1
        assert largest_error(model, sampler) < 2e-2  # woken by weights, with the new ones
    finally:
        sampler.close()
