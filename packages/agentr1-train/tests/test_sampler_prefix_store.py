"""Reuse of keys and values between turns: never a different distribution, and only what is new is read."""

import numpy as np
import pytest
import torch
from agentr1_train.sampler.base import Prompt, SamplingParams
from agentr1_train.sampler.grouped_attention import NAME
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.kv_cache import BufferCache
from agentr1_train.sampler.prefix_store import PrefixStore
from transformers import LlamaForCausalLM


class Reading:
    """Counts the tokens a model reads, padding included."""

    def __init__(self, model) -> None:
        self.tokens = 0
        model.register_forward_pre_hook(self.count, with_kwargs=True)

    def count(self, _, args, kwargs) -> None:
        self.tokens += kwargs["input_ids"].numel()


def random_ids(rng, low: int, high: int) -> tuple[int, ...]:
    return tuple(int(token) for token in rng.integers(3, 300, size=rng.integers(low, high)))


@pytest.mark.parametrize("kind", ["llama_kv4", "llama_kv1", "qwen2_sliding", "gpt2"])
def test_turns_of_an_episode_sample_from_the_exact_distribution(kind, make_model, tiny_tokenizer) -> None:
    model = make_model(kind)
    sampler = HFSampler(model, tiny_tokenizer, max_batch=5)
    reading = Reading(model)
    rng = np.random.default_rng(0)
    history = {i: random_ids(rng, 20, 40) for i in range(8)}
    for turn in range(4):
        before = reading.tokens
        prompts = [Prompt(ids, (9, i, turn), int(4 + 2 * i)) for i, ids in history.items()]
        done = sampler.sample(prompts, SamplingParams(1.0, stop_ids=tuple(range(20, 60))))
        for prompt, completion in zip(prompts, done, strict=True):
            row = torch.tensor([[*prompt.ids, *completion.ids]])
            with torch.no_grad():
                logits = model(input_ids=row, use_cache=False).logits[0, len(prompt.ids) - 1 : -1]
            reading.tokens -= row.numel()
            exact = logits.log_softmax(-1).gather(-1, torch.tensor(completion.ids)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(completion.logprobs), exact, atol=3e-4, rtol=1e-4)
            new = random_ids(rng, 1, 9)
            history[prompt.key[1]] = (*prompt.ids, *completion.ids, *new)
        if turn:  # at most nine new tokens, the last sampled one and eighteen to write, in each of eight rows
            assert reading.tokens - before <= 8 * (9 + 1 + 18)
        if turn == 1:  # an episode whose past was rewritten in the middle, one that starts anew, one that is shortened
            history[2] = (*history[2][:25], *random_ids(rng, 10, 20))
            history[3] = random_ids(rng, 20, 40)
            history[4] = history[4][:18]


def test_a_second_turn_samples_the_same_with_and_without_the_first(tiny_model, tiny_tokenizer) -> None:
    rng = np.random.default_rng(1)
    warm, cold = (HFSampler(tiny_model, tiny_tokenizer) for _ in range(2))
    first = [Prompt(random_ids(rng, 20, 40), (0, i, 0), 10) for i in range(6)]
    done = warm.sample(first, SamplingParams())
    second = [
        Prompt((*p.ids, *c.ids, 5, 6, 7), (0, i, 1), 10) for i, (p, c) in enumerate(zip(first, done, strict=True))
    ]
    assert [c.ids for c in warm.sample(second, SamplingParams())] == [
        c.ids for c in cold.sample(second, SamplingParams())
    ]


def test_new_weights_forget_what_the_old_ones_computed(tiny_model, tiny_model_dir, tiny_tokenizer) -> None:
    rng = np.random.default_rng(1)
    sampler = HFSampler(tiny_model, tiny_tokenizer)
    prompt = Prompt(random_ids(rng, 30, 40), (0, 0), 10)
    done = sampler.sample([prompt], SamplingParams())[0]
    other = LlamaForCausalLM.from_pretrained(tiny_model_dir).eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.3)
    sampler.load_weights(1, other.named_parameters())
    following = Prompt((*prompt.ids, *done.ids, 9), (0, 1), 10)
    fresh = HFSampler(other, tiny_tokenizer).sample([following], SamplingParams())
    assert sampler.sample([following], SamplingParams()) == fresh


def test_the_store_holds_no_more_than_it_may() -> None:
    cache = BufferCache(2)
    for layer in range(2):
        cache.update(torch.randn(1, 1, 100, 4), torch.randn(1, 1, 100, 4), layer)
    one = 2 * 2 * 50 * 4 * 4  # layers, keys and values, tokens, width, bytes
    store = PrefixStore(3 * one)
    ids = tuple(range(50))
    for episode in range(5):
        store.put(Prompt(ids, (episode, 0), 1), ids, cache, 0, 10)
    found = [store.find(Prompt((*ids, 1), (episode, 1), 1)) is not None for episode in range(5)]
    assert found == [False, False, True, True, True]
    store.put(Prompt(ids, (4, 1), 1), ids[:20], cache, 0, 10)  # replaces the longer one of its episode
    assert len(store) == 3
    entry = store.find(Prompt((*ids, 1), (4, 2), 1))
    assert entry is not None
    assert entry.ids == ids[:20]
    torch.testing.assert_close(entry.layers[1][0], cache.buffers[1].content()[0][0, :, 10:30])
    store.put(Prompt(ids, (7, 0), 1), tuple(range(90)), cache, 0, 0)
    assert len(store) == 2  # two went for the large one
    assert store.find(Prompt(ids, (2, 1), 1)) is None
    assert store.find(Prompt((*range(15), 99, 98), (3, 1), 1)) is None  # too short a common beginning
    store.clear()
    assert len(store) == 0


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("length", [1, 5])
def test_grouped_attention_is_sdpa(masked, length) -> None:
    from agentr1_train.sampler.grouped_attention import grouped_attention
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    torch.manual_seed(0)
    query, key, value = (torch.randn(3, heads, n, 8) for heads, n in ((6, length), (2, 11), (2, 11)))
    mask = None
    if masked:
        mask = torch.rand(3, 1, length, 11) > 0.3
        mask[..., 0] = True
    module = torch.nn.Module()
    module.num_key_value_groups = 3
    if mask is None and length > 1:
        key, value = key[:, :, :length], value[:, :, :length]
    expected, _ = sdpa_attention_forward(module, query, key, value, mask, scaling=0.3)
    got, _ = grouped_attention(module, query, key, value, mask, scaling=0.3)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_grouped_attention_is_used_where_keys_are_shared(tiny_model, make_model, tiny_tokenizer) -> None:
    HFSampler(tiny_model, tiny_tokenizer)
    assert tiny_model.config._attn_implementation == NAME
    plain = make_model("llama_kv4")
    HFSampler(plain, tiny_tokenizer)
    assert plain.config._attn_implementation == "sdpa"
