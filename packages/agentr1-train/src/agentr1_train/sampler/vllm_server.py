"""Samples from a vLLM server: one that the run starts on rank 0 and ends, or one that runs already.

Token ids go to the completions endpoint and come back from it; no text is tokenised anywhere. New weights reach the
server over NCCL where the ranks are on GPUs, and else through a folder that it reads again, on the same machine. The
server must be in vLLM's development mode (``VLLM_SERVER_DEV_MODE=1``), which opens the calls for weights.
"""

import http.client
import json
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from agentr1_train import distributed
from agentr1_train.config import SamplerConfig
from agentr1_train.errors import AgentR1Error, ConfigError, RunFailedError
from agentr1_train.policy import DTYPES
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.sampler.vllm import engine_arguments
from agentr1_train.sampler.vllm_process import ServerProcess, answers
from agentr1_train.sampler.vllm_requests import ExpectedWeights, check_lengths, completion, request_fields
from agentr1_train.sampler.vllm_transfer import WeightTransfer

SHARD_BYTES = 2 << 30
"""Weights that are held in memory at once, beside the largest tensor, on their way to the folder."""
_ADAPTER = "adapter"
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class VLLMServerSampler:
    """Asks a server. Every rank sends its own prompts; ``__init__``, ``load_weights`` and ``close`` are collective.

    Ranks meet in a group of their own, since rollouts that run ahead load weights in another thread than the trainer's.
    """

    def __init__(self, path: str, settings: SamplerConfig, device: torch.device | str = "cpu") -> None:
        """Start a server with the weights of a model folder, or join the one at ``settings.server_url``.

        Args:
            path: local folder or hub name; a server that is joined must serve the same model.
            settings: precision, requests in flight, memory, adapter, server.
            device: of the rank.

        Raises:
            ConfigError: the server cannot be started or reached, or gives log-probabilities of another distribution.
        """
        self.policy_version = 0
        self._path, self._settings, self._device = path, settings, torch.device(device)
        self._process: ServerProcess | None = None
        self._transfer: WeightTransfer | None = None
        self._expected = ExpectedWeights(path)
        self._gather = distributed.side_gather()
        self._url = self._from_main(self._start if not settings.server_url else self._join)
        served = self._call("/v1/models")["data"]
        names = [entry["id"] for entry in served]
        self._model = _ADAPTER if settings.lora else names[0]
        self._limit = int(served[0]["max_model_len"])
        self._threads = ThreadPoolExecutor(settings.max_batch, thread_name_prefix="agentr1-vllm")
        try:
            self._check_logprobs()
        except RunFailedError as error:
            said = self._process.last_lines() if self._process is not None else ""
            self.close()
            raise ConfigError(f"vLLM's server cannot sample from {path}: {error}\n{said}".rstrip()) from error
        except BaseException:
            self.close()
            raise

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Completion]:
        """Return one completion for each prompt, in order.

        Raises:
            ConfigError: a prompt and its longest response exceed what the model or vLLM's cache holds.
            NonFiniteLogitsError: the model gave NaN or infinity.
            RunFailedError: the server ended.
        """
        check_lengths(prompts, self._limit)
        return list(self._threads.map(lambda prompt: self._complete(prompt, params), prompts))

    def load_weights(self, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Replace the server's weights, have it forget cached prefixes, stamp the version. A collective call.

        Raises:
            ConfigError: a name or shape that this model does not have, a parameter that did not come, or a server
                without development mode.
        """
        stream = self._expected.checked(tensors)
        if self._device.type == "cuda":
            self._send(version, stream)
        else:
            self._reload(version, stream)
        self.policy_version = version

    def checksums(self) -> dict[str, str]:
        """Return a digest of every tensor in the server: what vLLM itself holds, not what it was sent.

        On a CPU vLLM packs the matrices of linear layers and lets the originals go: their digests say nothing there.
        """
        return self._call("/weight_checker", {"action": "checksum"})["checksums"]

    def close(self) -> None:
        """End the server, if the run started it."""
        self._threads.shutdown()
        if self._process is not None:
            self._process.close()
            self._process = None

    def _start(self) -> str:
        settings, on_cpu = self._settings, self._device.type == "cpu"
        variables = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}
        arguments = engine_arguments(self._path, settings, self._device)
        if on_cpu:
            if settings.server_gpus:
                raise ConfigError(f"sampler.server_gpus = {settings.server_gpus}, but the run is on a CPU.")
            # Its sampler compiles nothing at the first request, and it shares the cores with the ranks.
            variables |= {"TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        elif not settings.server_gpus:
            raise ConfigError(
                "sampler.server_gpus is empty: name the GPUs of vLLM's server, such as [4, 5]. The ranks train on the "
                "first GPUs, and NCCL cannot send weights from a GPU to itself; or join a server by sampler.server_url."
            )
        else:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, settings.server_gpus))
            arguments |= {"tensor_parallel_size": len(settings.server_gpus)}
            arguments |= {"weight_transfer_config": json.dumps({"backend": "nccl"})}
        if settings.lora:
            arguments |= {"lora_modules": f"{_ADAPTER}={settings.lora}"}
        self._process = ServerProcess(arguments, variables)
        return self._process.url

    def _join(self) -> str:
        url = self._settings.server_url.rstrip("/")
        if not answers(url):
            raise ConfigError(f"sampler.server_url = {url!r}: no vLLM server answers at {url}/health.")
        return url

    def _check_logprobs(self) -> None:
        """A nucleus of one token has log-probability 0, unless the server reports those of the whole distribution."""
        (one,) = self.sample([Prompt((0,), (0,), 1)], SamplingParams(1.0, top_p=1e-6))
        if abs(one.logprobs[0]) > 1e-4:
            raise ConfigError(
                f"the vLLM server at {self._url} gives log-probabilities from before temperature and top-p. Start it "
                "with --logprobs-mode processed_logprobs."
            )

    def _complete(self, prompt: Prompt, params: SamplingParams) -> Completion:
        if prompt.max_tokens <= 0:
            return Completion((), (), "length")
        body = {"model": self._model, "prompt": list(prompt.ids), "return_token_ids": True}
        (choice,) = self._call("/v1/completions", body | request_fields(prompt, params))["choices"]
        return completion(choice["token_ids"], choice["logprobs"]["token_logprobs"], choice["finish_reason"])

    def _send(self, version: int, stream: Iterable[tuple[str, Tensor]]) -> None:
        if self._transfer is None:
            workers = int(self._call("/get_world_size")["world_size"])
            self._transfer = WeightTransfer(
                self._url,
                self._call,
                self._expected.shapes,
                DTYPES[self._settings.dtype],
                self._device,
                workers=workers,
                rank=distributed.rank(),
            )
        self._from_main(lambda: self._call("/pause?mode=wait", {}))
        self._transfer.send(stream)
        self._from_main(lambda: self._resume(version))

    def _reload(self, version: int, stream: Iterable[tuple[str, Tensor]]) -> None:
        with tempfile.TemporaryDirectory(prefix="agentr1-weights-") as folder:
            write_weights(Path(folder), stream if distributed.is_main() else _consumed(stream))

            def swap() -> None:
                self._call("/pause?mode=wait", {})
                body = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
                self._call("/collective_rpc", body)
                if self._expected.tied:
                    self._call("/collective_rpc", {"method": "pack_output_layer"})
                self._resume(version)

            self._from_main(swap)

    def _resume(self, version: int) -> None:
        if not self._call("/reset_prefix_cache", {})["success"]:
            raise RunFailedError("vLLM kept its prefix cache: requests were running during a weight update.")
        self._call("/update_weight_version", {"new_version": str(version)})
        self._call("/resume", {})

    def _call(self, path: str, body: Any = None) -> Any:
        """Return the server's JSON answer, None where it is empty. With a body it is a POST."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"})
        try:
            with _OPENER.open(request, timeout=3600) as reply:
                text = reply.read()
        except urllib.error.HTTPError as error:
            said = error.read().decode("utf-8", errors="replace")[:500]
            if error.code == 404 and not path.startswith("/v1/"):
                raise ConfigError(
                    f"the vLLM server at {self._url} knows no {path.partition('?')[0]}: start it with "
                    "VLLM_SERVER_DEV_MODE=1 in its environment."
                ) from error
            raise RunFailedError(f"the vLLM server at {self._url}{path} answered {error.code}: {said}") from error
        except (OSError, http.client.HTTPException) as error:  # the latter: it ended in the middle of its answer
            if self._process is not None:
                self._process.check()
            raise RunFailedError(
                f"the vLLM server at {self._url} does not answer: {error}; --resume continues from the last checkpoint."
            ) from error
        return json.loads(text) if text else None

    def _from_main(self, action: Callable[[], Any]) -> Any:
        """Run on rank 0 and return its outcome on every rank; what it raises, all raise."""
        outcome: tuple[Any, AgentR1Error | None] = (None, None)
        if distributed.is_main():
            try:
                outcome = (action(), None)
            except AgentR1Error as error:
                outcome = (None, error)
        value, failed = self._gather(outcome)[0]
        if failed is not None:
            raise failed
        return value


def write_weights(folder: Path, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Write a stream of weights as safetensors files, at most ``SHARD_BYTES`` held at once."""
    shard: dict[str, Tensor] = {}
    held, count = 0, 0
    for name, tensor in tensors:
        if shard and held + tensor.nbytes > SHARD_BYTES:
            save_file(shard, folder / f"model-{count:05d}.safetensors")
            shard, held, count = {}, 0, count + 1
        shard[name] = tensor.detach().to("cpu", copy=True).contiguous()
        held += tensor.nbytes
    if shard:
        save_file(shard, folder / f"model-{count:05d}.safetensors")


def _consumed(stream: Iterable[tuple[str, Tensor]]) -> Iterable[tuple[str, Tensor]]:
    for _ in stream:
        continue
    return ()
