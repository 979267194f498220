"""Makes the sampler a recipe names, and the tokenizer that goes with it."""

from typing import Any

import torch

from agentr1_train.config import ModelConfig, Recipe, SamplerConfig
from agentr1_train.endpoint_config import EndpointConfig
from agentr1_train.errors import ConfigError, UnknownNameError
from agentr1_train.policy import check_path, load_model
from agentr1_train.renderer import byte_tokenizer, load_tokenizer
from agentr1_train.sampler.base import Sampler
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.openai import OpenAISampler
from agentr1_train.sampler.scripted import ScriptedSampler, load_script
from agentr1_train.sampler.vllm import VLLMSampler
from agentr1_train.sampler.vllm_server import VLLMServerSampler

SAMPLERS = ("hf", "openai", "scripted", "vllm", "vllm_server")


def sampling_tokenizer(recipe: Recipe) -> Any:
    """Return the tokenizer of ``model.path``; where an endpoint has none that we know, one whose tokens are bytes.

    Raises:
        MissingFileError: no tokenizer there.
        ConfigError: there is no path, and ids are needed.
    """
    if recipe.sampler.name == "openai" and not recipe.model.path:
        if recipe.endpoint.api == "completions":
            raise ConfigError("endpoint.api = 'completions' sends token ids: set model.path to the model's tokenizer.")
        return byte_tokenizer()
    return load_tokenizer(recipe.model.path, recipe.model.chat_template)


def build_sampler(
    settings: SamplerConfig,
    model: ModelConfig,
    tokenizer: Any,
    device: torch.device | str,
    endpoint: EndpointConfig | None = None,
) -> Sampler:
    """Return a sampler with the weights of ``model.path`` (version 0), or one that asks an endpoint.

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
    if settings.name == "openai":
        return OpenAISampler(endpoint or EndpointConfig(), tokenizer)
    if settings.name.startswith("vllm"):
        check_path(model.path)
        kind = VLLMSampler if settings.name == "vllm" else VLLMServerSampler
        return kind(model.path, settings, device)
    loaded = load_model(model.path, model, settings.dtype)
    return HFSampler(loaded, tokenizer, max_batch=settings.max_batch, device=device)
