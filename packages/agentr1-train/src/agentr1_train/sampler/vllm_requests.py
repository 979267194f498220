"""What both vLLM samplers share: how a prompt becomes a request, what came back a completion, what weights must come.

Noise is vLLM's own, from one seed a request: an episode repeats under vLLM, and differs from the same under ``hf``.
vLLM itself is not imported here.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from agentr1_train.errors import ConfigError, MissingFileError, NonFiniteLogitsError
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""vLLM's names of ``sampler.dtype``."""
LOGPROBS = "processed_logprobs"
"""vLLM's name for: of the distribution that was sampled from, after temperature and top-p."""


def request_seed(key: tuple[int, ...]) -> int:
    """Return the seed of a prompt's noise, 63 bits of a hash of its key."""
    digest = hashlib.blake2b(repr(tuple(int(part) for part in key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def request_fields(prompt: Prompt, params: SamplingParams) -> dict[str, Any]:
    """Return what vLLM's ``SamplingParams`` and its completions endpoint call by the same names.

    Everything that changes the distribution is named, so that no ``generation_config.json`` fills it in. Greedy
    log-probabilities are those at temperature 1 in vLLM too.
    """
    return {
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": 0,  # all
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": request_seed(prompt.key),
        "max_tokens": prompt.max_tokens,
        "stop": list(params.stop),
        "stop_token_ids": list(params.stop_ids),
        "ignore_eos": True,  # the stop ids of the request end a response, not those of the model's folder
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "logprobs": 0,  # of the sampled token alone
    }


def completion(ids: Sequence[int], logprobs: Sequence[float], reason: str | None) -> Completion:
    """Return a response as the trainer records it.

    Raises:
        NonFiniteLogitsError: a log-probability is NaN or infinite.
        RuntimeError: vLLM gave another number of log-probabilities than of tokens, or ended for another reason.
    """
    if len(ids) != len(logprobs) or reason not in ("stop", "length"):
        raise RuntimeError(f"vLLM gave {len(ids)} tokens, {len(logprobs)} log-probabilities, and ended by {reason!r}.")
    if not all(map(math.isfinite, logprobs)):
        raise NonFiniteLogitsError(
            "the model's logits are NaN or infinite while sampling. Lower the learning rate, or take bf16 or fp32 "
            "instead of fp16 (sampler.dtype)."
        )
    return Completion(tuple(ids), tuple(logprobs), "stop" if reason == "stop" else "length")


def check_lengths(prompts: Iterable[Prompt], limit: int) -> None:
    """Refuse what vLLM would cut or refuse.

    Raises:
        ConfigError: a prompt and its longest response exceed ``limit`` tokens.
    """
    for prompt in prompts:
        if len(prompt.ids) + prompt.max_tokens > limit:
            raise ConfigError(
                f"a prompt of {len(prompt.ids)} tokens and a response of up to {prompt.max_tokens} exceed the {limit} "
                "tokens that the model's positions and vLLM's cache hold. Lower rollout.max_prompt_tokens or "
                "rollout.max_response_tokens, or raise sampler.kv_cache_gb (CPU) or sampler.gpu_memory."
            )


def check_lora(folder: str) -> int:
    """Return the rank of a LoRA adapter's folder.

    Raises:
        MissingFileError: there is no adapter in the folder.
        ConfigError: its configuration names no rank.
    """
    import json

    config = Path(folder) / "adapter_config.json"
    if not config.is_file():
        raise MissingFileError(
            f"sampler.lora = {folder!r}: no adapter there. It needs adapter_config.json and weights."
        )
    rank = json.loads(config.read_text("utf-8")).get("r")
    if not isinstance(rank, int) or rank < 1:
        raise ConfigError(
            f"sampler.lora = {folder!r}: its adapter_config.json gives r = {rank!r}; 1 or above is needed."
        )
    return rank


class ExpectedWeights:
    """The names and shapes that a whole update brings: those of the transformers model, tied weights once."""

    def __init__(self, path: str) -> None:
        """Read the model's configuration; no weight is read or allocated."""
        from transformers import AutoConfig, AutoModelForCausalLM

        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path))
        self.tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        """The output layer shares the input's weights."""
        self.shapes: dict[str, tuple[int, ...]] = {name: tuple(p.shape) for name, p in model.named_parameters()}

    def checked(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yield the stream as it is.

        Raises:
            ConfigError: a name or shape that the model does not have or, at the end, a parameter that did not come.
        """
        missing = dict(self.shapes)
        for name, tensor in tensors:
            expected = missing.pop(name, None)
            if expected != tuple(tensor.shape):
                has = "no such tensor, or it has come" if expected is None else f"shape {expected}"
                raise ConfigError(
                    f"weight sync: {name!r} comes with shape {tuple(tensor.shape)}, the sampler's model has {has}. "
                    "Trainer and sampler must be made from the same model.path."
                )
            yield name, tensor
        if missing:
            raise ConfigError(
                f"weight sync: {len(missing)} parameters did not come, such as {next(iter(missing))!r}. "
                "Trainer and sampler must be made from the same model.path."
            )
