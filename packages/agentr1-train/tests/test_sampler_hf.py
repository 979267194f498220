"""The transformers sampler: same in a batch as alone, log-probabilities of what was sampled, end tokens, weights."""

import math

import numpy as np
import pytest
import torch
from agentr1_train.errors import ConfigError, NonFiniteLogitsError
from agentr1_train.sampler.base import Prompt, SamplingParams
from agentr1_train.sampler.hf import HFSampler
from transformers import GPT2Config, GPT2LMHeadModel, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM


def make_prompts(count: int = 9, *, max_tokens: int = 12, seed: int = 0, longest: int = 40) -> list[Prompt]:
    """Prompts of unequal length, two of them equal."""
    rng = np.random.default_rng(seed)
    ids = [tuple(int(x) for x in rng.integers(3, 300, size=rng.integers(1, longest))) for _ in range(count)]
    ids[1] = ids[0]
    return [Prompt(row, (7, 0, i), max_tokens) for i, row in enumerate(ids)]


@pytest.fixture
def sampler(tiny_model, tiny_tokenizer):
    return HFSampler(tiny_model, tiny_tokenizer, max_batch=64)


def exact_logprobs(model, prompt: Prompt, ids, temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities from one forward over prompt and response, without cache, padding or batch."""
    row = torch.tensor([[*prompt.ids, *ids]])
    with torch.no_grad():
        logits = model(input_ids=row, use_cache=False).logits[0, len(prompt.ids) - 1 : -1].float()
    return (logits / temperature).log_softmax(-1)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_logprobs_are_those_of_a_plain_forward(sampler, tiny_model, temperature) -> None:
    prompts = make_prompts()
    for prompt, done in zip(prompts, sampler.sample(prompts, SamplingParams(temperature, stop_ids=(2,))), strict=True):
        assert 1 <= len(done.ids) <= 12
        expected = exact_logprobs(tiny_model, prompt, done.ids, temperature or 1.0)
        got = expected.gather(-1, torch.tensor(done.ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(done.logprobs), got, atol=2e-4, rtol=1e-4)
        if temperature == 0:
            assert list(done.ids) == expected.argmax(-1).tolist()


def test_a_prompt_samples_the_same_alone_and_in_any_batch(sampler, tiny_model, tiny_tokenizer) -> None:
    prompts = make_prompts(20)
    params = SamplingParams(1.0, stop_ids=(2, 40, 41, 42, 43))  # many ends: rows leave at different times
    together = sampler.sample(prompts, params)
    alone = [sampler.sample([prompt], params)[0] for prompt in prompts]
    small = HFSampler(tiny_model, tiny_tokenizer, max_batch=3).sample(prompts[::-1], params)[::-1]
    assert [done.ids for done in together] == [done.ids for done in alone] == [done.ids for done in small]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=2e-4)
    assert len({len(done.ids) for done in together}) > 2  # the batch did shrink


def test_equal_prompts_with_different_keys_differ_and_equal_keys_repeat(sampler) -> None:
    prompts = make_prompts()
    first, second = sampler.sample(prompts, SamplingParams())[:2]
    assert first.ids != second.ids
    again = sampler.sample([Prompt(prompts[0].ids, prompts[0].key, 12)], SamplingParams())
    assert again[0].ids == first.ids


def test_a_longer_limit_begins_with_the_same_tokens(sampler) -> None:
    short, long = (sampler.sample([Prompt((5, 6, 7), (1, 2), n)], SamplingParams())[0] for n in (5, 30))
    assert long.ids[:5] == short.ids
    assert (len(short.ids), short.finish_reason, len(long.ids)) == (5, "length", 30)


def test_frequencies_follow_the_distribution(sampler, tiny_model) -> None:
    ids = (9, 8, 7, 6)
    n = 4000
    drawn = sampler.sample([Prompt(ids, (0, i), 1) for i in range(n)], SamplingParams(0.8))
    counts = np.bincount([done.ids[0] for done in drawn], minlength=320)
    with torch.no_grad():
        logits = tiny_model(input_ids=torch.tensor([ids])).logits[0, -1]
    probs = (logits / 0.8).softmax(-1).double().numpy()
    likely = probs > 0.01
    z = (counts[likely] - n * probs[likely]) / np.sqrt(n * probs[likely] * (1 - probs[likely]))
    assert likely.sum() >= 5
    assert abs(z).max() < 4.5


@pytest.mark.parametrize("top_p", [0.3, 0.9])
def test_top_p_keeps_the_nucleus_and_renormalises(sampler, tiny_model, top_p) -> None:
    ids = (9, 8, 7, 6)
    drawn = sampler.sample([Prompt(ids, (1, i), 1) for i in range(500)], SamplingParams(1.0, top_p))
    with torch.no_grad():
        probs = tiny_model(input_ids=torch.tensor([ids])).logits[0, -1].softmax(-1)
    best, index = probs.sort(descending=True)
    count = int((best.cumsum(0) < top_p).sum()) + 1
    nucleus = set(index[:count].tolist())
    mass = float(best[:count].sum())
    seen = {done.ids[0] for done in drawn}
    assert seen <= nucleus
    assert len(seen) > 1 or count == 1
    for done in drawn:
        assert done.logprobs[0] == pytest.approx(math.log(float(probs[done.ids[0]]) / mass), abs=1e-4)


def test_stop_strings_end_a_response_and_stay_in_it(sampler, tiny_tokenizer) -> None:
    prompts = [Prompt((5, 6, i), (3, i), 200) for i in range(20)]
    free = sampler.sample(prompts, SamplingParams(1.0))
    stop = ("a", "ö!")
    for before, after in zip(free, sampler.sample(prompts, SamplingParams(1.0, stop=stop)), strict=True):
        assert after.ids == before.ids[: len(after.ids)]  # same noise, only cut
        text = tiny_tokenizer.decode(list(after.ids))
        if after.finish_reason == "stop":
            assert any(word in text for word in stop)
            assert not any(word in tiny_tokenizer.decode(list(after.ids[:-1])) for word in stop)
        else:
            assert len(after.ids) == 200
            assert not any(word in text for word in stop)


def test_a_stop_string_over_several_tokens_is_found(sampler, tiny_tokenizer) -> None:
    free = sampler.sample([Prompt((5, 6, 7), (4, 4), 60)], SamplingParams(1.0))[0]
    for size in (2, 3, 5):
        stop = tiny_tokenizer.decode(list(free.ids[20 : 20 + size]))
        if "\ufffd" in stop:
            continue
        cut = sampler.sample([Prompt((5, 6, 7), (4, 4), 60)], SamplingParams(1.0, stop=(stop,)))[0]
        assert cut.finish_reason == "stop"
        assert len(cut.ids) <= 20 + size
        assert stop in tiny_tokenizer.decode(list(cut.ids))


def test_stop_ids_end_a_response_and_stay_in_it(sampler) -> None:
    stop_ids = tuple(range(0, 320, 7))
    for done in sampler.sample(make_prompts(max_tokens=100), SamplingParams(1.0, stop_ids=stop_ids)):
        inside = [token in stop_ids for token in done.ids]
        assert not any(inside[:-1])
        assert inside[-1] == (done.finish_reason == "stop")


def test_limits_of_each_row_hold_and_zero_gives_an_empty_response(sampler) -> None:
    prompts = [Prompt((5, 6), (i,), n) for i, n in enumerate((0, 1, 9, 4))]
    done = sampler.sample(prompts, SamplingParams(1.0))
    assert [len(completion.ids) for completion in done] == [0, 1, 9, 4]
    assert all(len(completion.ids) == len(completion.logprobs) for completion in done)
    assert sampler.sample([], SamplingParams()) == []


@pytest.mark.parametrize("kind", ["qwen2_sliding", "gpt2"])
def test_other_architectures(kind, tiny_tokenizer) -> None:
    torch.manual_seed(1)
    if kind == "gpt2":
        model = GPT2LMHeadModel(
            GPT2Config(vocab_size=320, n_positions=128, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3)
        )
    else:
        config = Qwen2Config(
            vocab_size=320,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            use_sliding_window=True,
            sliding_window=6,
            max_window_layers=2,
            initializer_range=0.3,
        )
        assert "sliding_attention" in config.layer_types
        model = Qwen2ForCausalLM(config)
    model.eval()
    sampler = HFSampler(model, tiny_tokenizer)
    prompts = make_prompts(6)
    for prompt, done in zip(prompts, sampler.sample(prompts, SamplingParams(1.0)), strict=True):
        expected = exact_logprobs(model, prompt, done.ids).gather(-1, torch.tensor(done.ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(done.logprobs), expected, atol=2e-4, rtol=1e-4)


def test_load_weights_changes_the_samples_and_the_version(sampler, tiny_model_dir) -> None:
    prompts = make_prompts()
    before = sampler.sample(prompts, SamplingParams(0.0))
    other = LlamaForCausalLM.from_pretrained(tiny_model_dir)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    sampler.load_weights(3, ((name, p.detach()) for name, p in other.named_parameters()))
    assert sampler.policy_version == 3
    after = sampler.sample(prompts, SamplingParams(0.0))
    assert before != after
    expected = exact_logprobs(other.eval(), prompts[0], after[0].ids)
    assert list(after[0].ids) == expected.argmax(-1).tolist()


def test_load_weights_refuses_names_shapes_and_gaps(sampler, tiny_model_dir) -> None:
    weights = dict(LlamaForCausalLM.from_pretrained(tiny_model_dir).named_parameters())
    name = "model.norm.weight"
    with pytest.raises(ConfigError, match="no such tensor"):
        sampler.load_weights(1, [("model.nonsense", torch.zeros(3))])
    with pytest.raises(ConfigError, match=r"shape \(3,\).*shape \(32,\)"):
        sampler.load_weights(1, [(name, torch.zeros(3))])
    with pytest.raises(ConfigError, match=r"1 parameters did not come.*norm"):
        sampler.load_weights(1, [(key, value) for key, value in weights.items() if key != name])
    assert sampler.policy_version == 0


def test_refusals(sampler, tiny_model, tiny_tokenizer) -> None:
    with pytest.raises(ConfigError, match="2048 positions"):
        sampler.sample([Prompt((1,) * 2000, (0,), 49)], SamplingParams())
    with pytest.raises(ConfigError, match="max_batch = 0"):
        HFSampler(tiny_model, tiny_tokenizer, max_batch=0)
    with torch.no_grad():
        tiny_model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(NonFiniteLogitsError, match="NaN"):
        HFSampler(tiny_model, tiny_tokenizer).sample(make_prompts(), SamplingParams())
