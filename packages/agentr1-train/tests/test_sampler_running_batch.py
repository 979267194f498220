"""A batch that goes on: whoever joins, and when, a prompt samples what it samples alone."""

import numpy as np
import pytest
import torch
from agentr1_train.errors import ConfigError, NonFiniteLogitsError
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.running_batch import Limits, RunningBatch


def make_prompts(lengths: list[int], limits: list[int]) -> list[Prompt]:
    rng = np.random.default_rng(3)
    rows = [tuple(int(token) for token in rng.integers(3, 300, size=length)) for length in lengths]
    return [Prompt(ids, (5, i, 0), limit) for i, (ids, limit) in enumerate(zip(rows, limits, strict=True))]


PROMPTS = make_prompts([20, 3, 31, 12, 60, 7, 1, 40, 31, 9], [30, 6, 12, 1, 17, 40, 8, 25, 3, 14])
WAVES = (slice(0, 3), slice(3, 4), slice(4, 8), slice(8, 10))  # the third brings a prompt wider than the batch


def sample_in_waves(sampler: HFSampler, params: SamplingParams, steps: int = 4) -> list[Completion]:
    """Let prompts join wave by wave, a few tokens apart."""
    batch, places, done = sampler.start(params), {}, {}
    waves = list(WAVES)
    while waves or places:
        if waves:
            wave = waves.pop(0)
            places.update(zip(batch.join(PROMPTS[wave]), range(len(PROMPTS))[wave], strict=True))
        for ticket, outcome in batch.decode(steps).items():
            assert isinstance(outcome, Completion)
            done[places.pop(ticket)] = outcome
    return [done[i] for i in range(len(PROMPTS))]


@pytest.mark.parametrize("kind", ["llama_kv4", "llama_kv1", "qwen2_sliding", "gpt2"])
def test_greedy_tokens_are_those_of_generate(kind: str, make_model, tiny_tokenizer) -> None:
    plain = make_model(kind)
    done = sample_in_waves(HFSampler(make_model(kind), tiny_tokenizer), SamplingParams(0.0))
    for prompt, completion in zip(PROMPTS, done, strict=True):
        expected = plain.generate(
            input_ids=torch.tensor([prompt.ids]),
            attention_mask=torch.ones(1, len(prompt.ids), dtype=torch.long),
            max_new_tokens=prompt.max_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        assert list(completion.ids) == expected[0, len(prompt.ids) :].tolist()


@pytest.mark.parametrize("steps", [1, 4, 50])
def test_noise_limits_and_ends_are_the_prompts_own(steps: int, tiny_model, tiny_tokenizer) -> None:
    params = SamplingParams(1.0, stop=("a",), stop_ids=(2, 40, 41, 42))
    done = sample_in_waves(HFSampler(tiny_model, tiny_tokenizer), params, steps)
    alone = HFSampler(tiny_model, tiny_tokenizer)
    for prompt, completion in zip(PROMPTS, done, strict=True):
        (expected,) = alone.sample([prompt], params)
        assert (completion.ids, completion.finish_reason) == (expected.ids, expected.finish_reason)
        np.testing.assert_allclose(completion.logprobs, expected.logprobs, atol=2e-4)
    assert {completion.finish_reason for completion in done} == {"stop", "length"}


def test_what_a_prompt_does_wrong_is_its_own_outcome(tiny_model, tiny_tokenizer) -> None:
    """One is too long, one has a token whose embedding is no number, one asks for nothing; nobody else notices."""
    with torch.no_grad():
        tiny_model.model.embed_tokens.weight[7] = float("nan")
        if tiny_model.lm_head.weight is tiny_model.model.embed_tokens.weight:
            tiny_model.lm_head.weight = torch.nn.Parameter(tiny_model.lm_head.weight.nan_to_num())
    sampler = HFSampler(tiny_model, tiny_tokenizer)
    good = Prompt((5, 6, 8), (1, 0), 12)
    (expected,) = sampler.sample([good], SamplingParams(0.0))
    batch = sampler.start(SamplingParams(0.0))
    first = batch.join([good])
    others = batch.join([Prompt((1,) * 2040, (2, 0), 9), Prompt((5, 7, 8), (3, 0), 9), Prompt((5,), (4, 0), 0)])
    found = {}
    for _ in range(20):
        found |= batch.decode(1)
    assert [type(found[ticket]) for ticket in others] == [ConfigError, NonFiniteLogitsError, Completion]
    assert found[others[2]] == Completion((), (), "length")
    assert found[first[0]].ids == expected.ids


def test_what_is_dropped_has_no_outcome_and_hurts_nobody(tiny_model, tiny_tokenizer) -> None:
    sampler = HFSampler(tiny_model, tiny_tokenizer)
    prompts = make_prompts([12, 20, 5], [20, 20, 20])
    expected = [sampler.sample([prompt], SamplingParams())[0].ids for prompt in prompts]
    batch = sampler.start(SamplingParams())
    tickets = batch.join(prompts)
    batch.decode(3)
    batch.drop([tickets[1]])
    found = {}
    while len(found) < 2:
        found |= batch.decode(5)
    assert {ticket: outcome.ids for ticket, outcome in found.items()} == {0: expected[0], 2: expected[2]}
    assert batch.decode(5) == {}


def test_a_batch_ends_when_the_weights_change(tiny_model, tiny_tokenizer) -> None:
    sampler = HFSampler(tiny_model, tiny_tokenizer)
    batch = sampler.start(SamplingParams())
    batch.join(PROMPTS[:2])
    sampler.load_weights(1, list(tiny_model.named_parameters()))
    with pytest.raises(RuntimeError, match="weights changed"):
        batch.decode(1)
    with pytest.raises(RuntimeError, match="weights changed"):
        batch.join(PROMPTS[2:])


def test_room_is_what_rows_and_memory_leave(tiny_model, tiny_tokenizer) -> None:
    sampler = HFSampler(tiny_model, tiny_tokenizer, max_batch=4)
    batch = sampler.start(SamplingParams())
    prompts = [Prompt((1,) * 10, (i, 0), 6) for i in range(9)]
    assert batch.room(prompts) == 4
    batch.join(prompts[:3])
    assert batch.room(prompts[3:]) == 1
    assert batch.room([]) == 0
    config = tiny_model.config
    token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4
    little = RunningBatch(tiny_model, SamplingParams(), sampler._store, None, Limits(64, 5 * 17 * token))
    assert little.room(prompts) == 5
    assert little.room([Prompt((1,) * 200, (1, 1), 6)]) == 1  # alone, it may try
    little.join(prompts[:4])
    assert little.room(prompts) == 1  # five rows of 11 tokens, and 6 more to come
    assert little.room([Prompt((1,) * 15, (1, 1), 6)]) == 0


def test_more_prompts_than_rows_keep_the_batch_full(tiny_model, tiny_tokenizer) -> None:
    """A quarter may be missing, no more, until none is left to join."""
    sampler = HFSampler(tiny_model, tiny_tokenizer, max_batch=8)
    prompts = make_prompts([6] * 40, [2 + 7 * i % 23 for i in range(40)])
    reads: list[int] = []
    tiny_model.register_forward_pre_hook(
        lambda _, args, kwargs: reads.append(len(kwargs["input_ids"])) if kwargs["input_ids"].shape[1] == 1 else None,
        with_kwargs=True,
    )
    sampler.sample(prompts, SamplingParams(0.0))
    drawn = sum(prompt.max_tokens - 1 for prompt in prompts)
    longest = max(prompt.max_tokens for prompt in prompts)
    assert len(reads) <= drawn / 6 + longest
