"""The scripted sampler obeys the same rules as a real one."""

import pytest
import torch
from agentr1_train.config import ModelConfig, SamplerConfig
from agentr1_train.errors import ConfigError, UnknownNameError
from agentr1_train.sampler.base import Prompt, SamplingParams
from agentr1_train.sampler.build import build_sampler
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.scripted import ScriptedSampler, load_script


def repeat(prompt: str, key: tuple[int, ...]) -> str:
    """A script that a recipe could name."""
    return f"{prompt}#{key[-1]}"


def test_writes_what_the_script_says_and_ends(tiny_tokenizer) -> None:
    ids = tuple(tiny_tokenizer.encode("ab"))
    sampler = ScriptedSampler(tiny_tokenizer, repeat, logprob=-0.25)
    one, two = sampler.sample([Prompt(ids, (0, 1), 50), Prompt(ids, (0, 2), 50)], SamplingParams())
    assert tiny_tokenizer.decode(one.ids) == "ab#1<|im_end|>"
    assert tiny_tokenizer.decode(two.ids) == "ab#2<|im_end|>"
    assert one.logprobs == (-0.25,) * len(one.ids)
    assert one.finish_reason == "stop"


def test_limits_and_stop_strings_cut(tiny_tokenizer) -> None:
    ids = tuple(tiny_tokenizer.encode("x"))
    sampler = ScriptedSampler(tiny_tokenizer, lambda prompt, key: "<answer>42</answer> and so on")
    (cut,) = sampler.sample([Prompt(ids, (0,), 3)], SamplingParams())
    assert (len(cut.ids), cut.finish_reason) == (3, "length")
    (stopped,) = sampler.sample([Prompt(ids, (0,), 99)], SamplingParams(stop=("so", "</answer>")))
    assert tiny_tokenizer.decode(stopped.ids) == "<answer>42</answer>"
    assert stopped.finish_reason == "stop"


def test_load_weights_consumes_all_tensors(tiny_tokenizer) -> None:
    taken = []
    sampler = ScriptedSampler(tiny_tokenizer, repeat)
    sampler.load_weights(4, (taken.append(name) or (name, torch.zeros(1)) for name in "abc"))
    assert (taken, sampler.policy_version) == (["a", "b", "c"], 4)


def test_build_makes_what_the_recipe_names(tiny_model_dir, tiny_tokenizer) -> None:
    model = ModelConfig(path=str(tiny_model_dir))
    sampler = build_sampler(SamplerConfig(max_batch=2), model, tiny_tokenizer, "cpu")
    assert isinstance(sampler, HFSampler)
    assert len(sampler.sample([Prompt((5,), (0,), 2)] * 3, SamplingParams())) == 3
    scripted = build_sampler(SamplerConfig("scripted", script="os.path:join"), model, tiny_tokenizer, "cpu")
    assert isinstance(scripted, ScriptedSampler)
    with pytest.raises(UnknownNameError, match="Did you mean 'scripted'"):
        build_sampler(SamplerConfig("script"), model, tiny_tokenizer, "cpu")
    with pytest.raises(ConfigError, match=r"acts only with sampler\.name = 'scripted'"):
        build_sampler(SamplerConfig(script="os.path:join"), model, tiny_tokenizer, "cpu")


@pytest.mark.parametrize(
    ("name", "message"),
    [("nothing", "write module:function"), ("os:nope", "cannot be imported"), ("os:sep", "is a str, not a function")],
)
def test_scripts_that_cannot_be_used(name, message) -> None:
    with pytest.raises(ConfigError, match=message):
        load_script(name)
