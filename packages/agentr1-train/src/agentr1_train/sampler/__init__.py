"""Samplers: prompt ids in, response ids and log-probabilities out."""

from agentr1_train.sampler.base import Completion, Prompt, Sampler, SamplingParams, Sleeper
from agentr1_train.sampler.batching import BatchingSampler
from agentr1_train.sampler.build import SAMPLERS, build_sampler
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.openai import OpenAISampler
from agentr1_train.sampler.scripted import ScriptedSampler
from agentr1_train.sampler.vllm import VLLMSampler
from agentr1_train.sampler.vllm_server import VLLMServerSampler

__all__ = [
    "SAMPLERS",
    "BatchingSampler",
    "Completion",
    "HFSampler",
    "OpenAISampler",
    "Prompt",
    "Sampler",
    "SamplingParams",
    "ScriptedSampler",
    "Sleeper",
    "VLLMSampler",
    "VLLMServerSampler",
    "build_sampler",
]
