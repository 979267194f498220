"""Makes the sampler a recipe names."""

from typing import Any

import torch

from agentr1_train.config import ModelConfig, SamplerConfig
from agentr1_train.errors import ConfigError, UnknownNameError
from agentr1_train.policy import check_path, load_model
from agentr1_train.sampler.base import Sampler
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.scripted import ScriptedSampler, load_script
from agentr1_train.sampler.vllm import VLLMSampler

SAMPLERS = ("hf", "scripted", "vllm")


def build_sampler(settings: SamplerConfig, model: ModelConfig, tokenizer: Any, device: torch.device | str) -> Sampler:
    """Return a sampler with the weights of ``model.path`` (version 0).

    Raises:
        UnknownNameError: no sampler of that name.
        ConfigError: a setting that the named sampler does not use, or lacks; vLLM is not installed.
        MissingFileError: there is no model at the path.
    """
    if settings.name not in SAMPLERS:
        raise UnknownNameError("sampler", settings.name, SAMPLERS)
    if settings.name == "scripted":
        return ScriptedSampler(tokenizer, load_script(settings.script))
    if settings.script:
        raise ConfigError(f"sampler.script = {settings.script!r} acts only with sampler.name = 'scripted'.")
    if settings.name == "vllm":
        check_path(model.path)
        return VLLMSampler(model.path, settings, device)
    loaded = load_model(model.path, model, settings.dtype)
    return HFSampler(loaded, tokenizer, max_batch=settings.max_batch, device=device)
