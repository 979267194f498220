"""The policy's log-probabilities and entropies, against the plain formula on each row alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from agentr1_train.batch import Row, pack
from agentr1_train.config import ModelConfig
from agentr1_train.errors import ConfigError, MissingFileError
from agentr1_train.policy import PolicyModel, load_policy, load_reference, token_logprobs
from transformers import Gemma2Config, Gemma2ForCausalLM, GPT2Config, GPT2LMHeadModel

ROWS = [
    Row((5, 6, 7, 8), (9, 10, 11), (0, 0)),
    Row((3,), (4, 300), (0, 1)),
    Row((30, 31, 32, 33, 34, 35), (), (1, 0)),
    Row((30, 31), (2,), (1, 1)),
]


def plain(model: Any, rows: list[Row], temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Every row alone, all logits, the textbook formula."""
    logps, entropies = [], []
    for row in (row for row in rows if row.response_ids):
        logits = model(input_ids=torch.tensor([row.prompt_ids + row.response_ids])).logits[0] / temperature
        distribution = torch.distributions.Categorical(logits=logits[len(row.prompt_ids) - 1 : -1].float())
        logps.append(distribution.log_prob(torch.tensor(row.response_ids, dtype=torch.long)))
        entropies.append(distribution.entropy())
    return torch.cat(logps), torch.cat(entropies)


def in_order(rows: list[Row], model: Any, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    (batch,) = pack(rows, 1000)
    logp, entropy = PolicyModel(model, temperature)(batch)
    place = torch.cat([(batch.step == batch.rows.index(at)).nonzero().flatten() for at in range(len(rows))])
    return logp[place], entropy[place]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_against_the_plain_formula(tiny_model: Any, temperature: float) -> None:
    logp, entropy = in_order(ROWS, tiny_model, temperature)
    want_logp, want_entropy = plain(tiny_model, ROWS, temperature)
    torch.testing.assert_close(logp, want_logp, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy, want_entropy, rtol=1e-5, atol=1e-5)


def test_what_the_model_does_to_its_logits_holds() -> None:
    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=320,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        final_logit_softcapping=0.5,
        initializer_range=0.3,
    )
    model = Gemma2ForCausalLM(config).eval()
    logp, _ = in_order(ROWS, model)
    torch.testing.assert_close(logp, plain(model, ROWS, 1.0)[0], rtol=1e-5, atol=1e-5)
    assert logp.min() > -torch.tensor(320.0).log() - 1.01  # capped at 0.5: nearly uniform


def test_logits_only_where_a_token_is_trained(tiny_model: Any) -> None:
    seen = []
    tiny_model.lm_head.register_forward_hook(lambda _module, args, output: seen.append((args[0].shape, output.shape)))
    (batch,) = pack(ROWS, 1000)
    PolicyModel(tiny_model)(batch)
    assert seen == [((1, 6, 32), (1, 6, tiny_model.config.vocab_size))]


def test_no_token_at_all_keeps_the_graph(tiny_model: Any) -> None:
    logp, entropy = PolicyModel(tiny_model)(pack([ROWS[2]], 10)[0])
    assert logp.shape == entropy.shape == (0,)
    logp.sum().backward()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in tiny_model.parameters())


def test_gradient_of_entropy_is_a_choice(tiny_model: Any) -> None:
    (batch,) = pack(ROWS, 1000)
    assert not PolicyModel(tiny_model)(batch)[1].requires_grad
    entropy = PolicyModel(tiny_model, entropy_grad=True)(batch)[1]
    logits = torch.randn(6, 11, dtype=torch.float64, requires_grad=True)
    targets = torch.arange(6)
    assert torch.autograd.gradcheck(
        lambda x: token_logprobs(x.float(), targets, 1.3, True)[1].double(), (logits,), eps=1e-2, atol=1e-2
    )
    assert entropy.requires_grad


def test_greedy_counts_as_temperature_one(tiny_model: Any) -> None:
    assert PolicyModel(tiny_model, temperature=0.0).temperature == 1.0


def test_half_precision_logits_are_read_in_float32() -> None:
    logits = torch.randn(5, 1000).bfloat16()
    logp, entropy = token_logprobs(logits, torch.arange(5))
    want = torch.distributions.Categorical(logits=logits.double())
    assert logp.dtype == entropy.dtype == torch.float32
    torch.testing.assert_close(logp.double(), want.log_prob(torch.arange(5)), rtol=1e-6, atol=1e-6)


def test_gradient_checkpointing_changes_no_gradient(tiny_model_dir: Path) -> None:
    (batch,) = pack(ROWS, 1000)
    gradients = []
    for checkpointing in (False, True):
        policy = load_policy(ModelConfig(path=str(tiny_model_dir), gradient_checkpointing=checkpointing)).train()
        assert policy.model.is_gradient_checkpointing == checkpointing
        policy(batch)[0].sum().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in policy.parameters()]))
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-7)


def test_dropout_is_off_in_training(tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=320, n_embd=32, n_layer=2, n_head=2, n_positions=64)
    assert config.resid_pdrop > 0
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    policy = load_policy(ModelConfig(path=str(tmp_path))).train()
    (batch,) = pack(ROWS, 1000)
    assert torch.equal(policy(batch)[0], policy(batch)[0])


def test_reference_is_frozen(tiny_model_dir: Path) -> None:
    reference = load_reference(ModelConfig(path=str(tiny_model_dir)), "bf16")
    assert not any(parameter.requires_grad for parameter in reference.parameters())
    assert {parameter.dtype for parameter in reference.parameters()} == {torch.bfloat16}


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    for path in (str(tmp_path / "none"), "./none", "a/b/c"):
        with pytest.raises(MissingFileError, match="no model folder at"):
            load_policy(ModelConfig(path=path))
    with pytest.raises(MissingFileError, match="has no config"):
        load_policy(ModelConfig(path=str(tmp_path)))
    (tmp_path / "model.gguf").touch()
    with pytest.raises(MissingFileError, match="is a file"):
        load_policy(ModelConfig(path=str(tmp_path / "model.gguf")))
    with pytest.raises(ConfigError, match=r"model\.path is empty"):
        load_policy(ModelConfig())


def test_a_folder_without_weights(tmp_path: Path, tiny_model_dir: Path) -> None:
    (tmp_path / "config.json").write_text((tiny_model_dir / "config.json").read_text())
    with pytest.raises(MissingFileError, match="import-gguf"):
        load_policy(ModelConfig(path=str(tmp_path)))


def test_an_unknown_attention(tiny_model_dir: Path) -> None:
    with pytest.raises(ConfigError, match="'fast'"):
        load_policy(ModelConfig(path=str(tiny_model_dir), attention="fast"))


def test_a_weight_that_is_missing_never_starts_at_random(tmp_path: Path, tiny_model: Any, tiny_model_dir: Path) -> None:
    weights = {name: tensor for name, tensor in tiny_model.state_dict().items() if "layers.1.mlp.up" not in name}
    tiny_model.save_pretrained(tmp_path, state_dict=weights)
    with pytest.raises(ConfigError, match=r"lacks 1 weights of LlamaForCausalLM, such as model\.layers\.1\.mlp\.up"):
        load_policy(ModelConfig(path=str(tmp_path)))
