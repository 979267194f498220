"""Adapters: exact when merged, alone trained, alone in the checkpoint, and nothing to the reference."""

from pathlib import Path
from typing import Any

import pytest
import torch
from agentr1_train.batch import pack, split_tokens
from agentr1_train.checkpoint import save_checkpoint
from agentr1_train.config import ModelConfig, recipe_from_dict
from agentr1_train.critic import load_critic
from agentr1_train.errors import ConfigError
from agentr1_train.lora import add_adapter, has_adapter, is_adapter, merged, plain_name, without_adapter
from agentr1_train.policy import PolicyModel, load_policy
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.tracking import read_events
from agentr1_train.trainer import train
from agentr1_train.weight_sync import sync_weights
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.once

pytest.importorskip("peft", reason="the extra agentr1-train[lora]")

RANK = ModelConfig(lora_rank=4)
IDS = torch.tensor([[5, 9, 2, 77, 31, 8]])


def shaken(model: Any) -> Any:
    """A model whose adapters are no longer nothing."""
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if is_adapter(name):
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def test_a_fresh_adapter_changes_nothing_and_alone_is_trained(tiny_model: Any) -> None:
    before = tiny_model(IDS).logits
    assert not has_adapter(tiny_model)
    add_adapter(tiny_model, RANK, seed=0)
    assert has_adapter(tiny_model)
    assert torch.equal(tiny_model(IDS).logits, before)
    trained = {name for name, parameter in tiny_model.named_parameters() if parameter.requires_grad}
    assert trained == {name for name, _ in tiny_model.named_parameters() if is_adapter(name)}
    layers = {name.partition(".lora_")[0].rpartition(".")[2] for name in trained}
    assert layers == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_the_seed_draws_the_adapter_and_nothing_else(tiny_model_dir: Path) -> None:
    def drawn(seed: int) -> torch.Tensor:
        policy = load_policy(ModelConfig(path=str(tiny_model_dir), lora_rank=4), seed=seed)
        return next(tensor for name, tensor in policy.named_parameters() if ".lora_A." in name)

    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(drawn(0), drawn(0))
    assert not torch.equal(drawn(0), drawn(1))
    assert torch.equal(torch.rand(1), expected)


def test_merged_weights_in_a_plain_model_compute_the_same(tiny_model: Any, tiny_model_dir: Path) -> None:
    add_adapter(tiny_model, ModelConfig(lora_rank=4, lora_alpha=3.0, lora_targets=("q_proj", "down_proj")), seed=0)
    want = shaken(tiny_model)(IDS).logits
    named = dict(tiny_model.named_parameters())
    weights = merged(tiny_model, {name: named[name] for name in named if is_adapter(name)}, named.items())
    plain = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    plain.load_state_dict(dict(weights), strict=True)
    torch.testing.assert_close(plain(IDS).logits, want, rtol=1e-4, atol=1e-4)
    assert plain_name("a.base_layer.weight") == "a.weight"


def test_without_its_adapter_it_is_the_model_it_began_as(tiny_model: Any) -> None:
    before = tiny_model(IDS).logits
    add_adapter(tiny_model, RANK, seed=0)
    changed = shaken(tiny_model)(IDS).logits
    assert (changed - before).abs().max() > 0.1
    with without_adapter(tiny_model):
        assert torch.equal(tiny_model(IDS).logits, before)
    assert torch.equal(tiny_model(IDS).logits, changed)


def test_a_critic_trains_its_adapter_and_its_head(tiny_model_dir: Path) -> None:
    critic = load_critic(ModelConfig(path=str(tiny_model_dir), lora_rank=2))
    trained = {name for name, parameter in critic.named_parameters() if parameter.requires_grad}
    assert {"head.weight", "head.bias"} < trained
    assert all(is_adapter(name) or name.startswith("head.") for name in trained)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_one_rank_is_plain_pytorch(ranks_script: Any, tiny_model_dir: Path, stage: int) -> None:
    """The engine's adapter after three updates is what AdamW makes of it without an engine."""
    engine, _ = ranks_script.make_engine(str(tiny_model_dir), stage, lora=4)
    rows = ranks_script.evaluated(engine, ranks_script.all_rows())
    for _ in range(3):
        ranks_script.update(engine, rows, lr=1e-3)
    policy = load_policy(ModelConfig(path=str(tiny_model_dir), lora_rank=4))
    trained = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.0)
    (batch,) = pack(rows, 10_000)
    for _ in range(3):
        optimizer.zero_grad()
        ranks_script.loss_of_policy(policy(batch), batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
    named = dict(policy.named_parameters())
    seen = {name: tensor.clone() for name, tensor in engine.named_weights()}
    assert seen.keys() == named.keys()
    for name, want in named.items():
        torch.testing.assert_close(seen[name], want.detach(), rtol=0, atol=2e-5)


def test_the_sampler_gets_merged_weights(ranks_script: Any, tiny_model_dir: Path, tiny_tokenizer: Any) -> None:
    engine, _ = ranks_script.make_engine(str(tiny_model_dir), 2, lora=4)
    rows = ranks_script.evaluated(engine, ranks_script.all_rows())
    ranks_script.update(engine, rows, lr=1e-2)
    sampler = HFSampler(AutoModelForCausalLM.from_pretrained(tiny_model_dir), tiny_tokenizer)
    assert sync_weights(engine, sampler) == 1
    batches = pack(rows, 64)
    with torch.no_grad():
        outputs = [PolicyModel(sampler._model)(batch)[0] for batch in batches]
    sampled = split_tokens(batches, outputs, len(rows))
    for span, want, old in zip(sampled, ranks_script.rows_logp(engine, rows), rows, strict=True):
        assert span == pytest.approx(want, abs=1e-4)
        assert not span or span != pytest.approx(old.old_logp, abs=1e-3)


VARIANTS = ["0_fp32", "2_fp32", "2_bf16", "3_fp32"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_ranks_resume_exactly(two_ranks: list[dict[str, Any]], variant: str) -> None:
    for seen in (result[f"lora_{variant}"] for result in two_ranks):
        first, second = seen["reports"]
        assert first == second
        assert first[0] != first[1]
        assert seen["same_weights"]
        assert seen["base_moved"] < (0.05 if "bf16" in variant else 1e-5)
    assert two_ranks[0][f"lora_{variant}"]["reports"] == two_ranks[1][f"lora_{variant}"]["reports"]


@pytest.mark.parametrize("variant", ["0_fp32", "2_fp32", "3_fp32"])
def test_the_export_of_two_ranks_is_a_plain_model_that_computes_the_same(
    two_ranks: list[dict[str, Any]], ranks_script: Any, variant: str
) -> None:
    for at, seen in enumerate(result[f"lora_{variant}"] for result in two_ranks):
        model = AutoModelForCausalLM.from_pretrained(seen["exported"])
        assert not has_adapter(model)
        rows = ranks_script.all_rows()[4:] if at == 0 else ranks_script.all_rows()[:4]
        batches = pack(rows, 64)
        with torch.no_grad():
            outputs = [PolicyModel(model)(batch)[0] for batch in batches]
        for span, want in zip(split_tokens(batches, outputs, len(rows)), seen["logp"], strict=True):
            assert span == pytest.approx(want, abs=1e-4)


def test_the_checkpoint_holds_the_adapter_alone(ranks_script: Any, tiny_model_dir: Path, tmp_path: Path) -> None:
    engine, recipe = ranks_script.make_engine(str(tiny_model_dir), 2, lora=1)
    folder = save_checkpoint(tmp_path, 1, {"policy": engine}, {}, recipe)
    states = torch.load(folder / "policy" / "mp_rank_00_model_states.pt", weights_only=False)
    assert states["module"]
    assert all(is_adapter(name) for name in states["module"])
    whole = sum(tensor.numel() for tensor in load_file(tiny_model_dir / "model.safetensors").values())
    assert sum(tensor.numel() for tensor in states["module"].values()) < whole / 10


def test_a_run_trains_exports_and_resumes(symbol_recipe: Any, symbol_model_dir: Path) -> None:
    """With a critic and a reference; the reference is where it began, update after update."""
    sections: dict[str, Any] = {
        "model": {"lora_rank": 4},
        "algorithm": {"preset": "ppo", "kl": "loss"},
        "checkpoint": {"every": 1},
    }
    folder = train(recipe_from_dict(symbol_recipe(updates=1, **sections)))
    train(recipe_from_dict(symbol_recipe(updates=2, **sections)), resume=True)
    first, second = (event for event in read_events(folder / "events.jsonl") if event["kind"] == "update")
    assert first["policy/kl_ref"] == pytest.approx(0.0, abs=1e-6)
    assert second["policy/kl_ref"] > 1e-6
    assert second["mismatch/kl"] == pytest.approx(0.0, abs=1e-5)
    before = AutoModelForCausalLM.from_pretrained(symbol_model_dir).state_dict()
    after = AutoModelForCausalLM.from_pretrained(folder / "model").state_dict()
    assert before.keys() == after.keys()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert all(name.endswith("_proj.weight") for name in moved)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"lora_rank": -1}, "model.lora_rank = -1"),
        ({"lora_rank": 2, "lora_alpha": 0.0}, "model.lora_alpha = 0.0: legal is above 0"),
        ({"lora_alpha": 8.0}, "lora_alpha = 8.0 would be without effect"),
        ({"lora_targets": ["q_proj"]}, "would be without effect: model.lora_rank is 0"),
        ({"lora_rank": 2, "lora_targets": ["c_attn"]}, "Its linear layers are called down_proj, gate_proj"),
    ],
)
def test_refusals(symbol_recipe: Any, fields: dict[str, Any], said: str) -> None:
    table = symbol_recipe(model=fields)
    with pytest.raises(ConfigError, match=said) as seen:
        train(recipe_from_dict(table))
    assert "\n" not in str(seen.value)
    assert not Path(table["run_dir"]).exists()
