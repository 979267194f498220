"""Sends weights from the ranks' GPUs to a vLLM server's, by vLLM's own weight-transfer interface over NCCL.

Rank 0 sends; the other ranks only read along, since the engine gathers sharded weights on all of them. Nothing travels
like this on a CPU: there the weights go through a folder (``vllm_server.py``).
"""

import contextlib
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor

Call = Callable[[str, Any], Any]
"""``call(path, body)`` posts to the server."""


class WeightTransfer:
    """A connection between rank 0 and every worker of the server, opened once and used for each update."""

    def __init__(
        self,
        url: str,
        call: Call,
        shapes: Mapping[str, tuple[int, ...]],
        dtype: torch.dtype,
        device: torch.device,
        *,
        workers: int,
        rank: int,
    ) -> None:
        """Open it. A collective call.

        Args:
            url: of the server.
            call: asks it.
            shapes: name and shape of every parameter, in the order in which updates bring them.
            dtype: in which they travel.
            device: of this rank, from which they travel; they may come from the host's memory.
            workers: the server's GPUs.
            rank: of this process.
        """
        from vllm.distributed.weight_transfer.base import (  # pyright: ignore[reportMissingImports]
            ParamMeta,
            WeightSource,
        )
        from vllm.distributed.weight_transfer.factory import (  # pyright: ignore[reportMissingImports]
            WeightTransferTrainerFactory,
        )
        from vllm.distributed.weight_transfer.nccl_engine import (  # pyright: ignore[reportMissingImports]
            NCCLTrainerInitInfo,
        )

        class Source(WeightSource):
            """Reads the stream of the update in progress."""

            stream: Iterable[tuple[str, Tensor]] = ()

            def metadata(self) -> list[Any]:
                return [ParamMeta(name, dtype, shape) for name, shape in shapes.items()]

            def __iter__(self) -> Iterator[tuple[str, Tensor]]:
                return iter(self.stream)

        host = urlsplit(url).hostname or "127.0.0.1"
        self._source, self._dtype, self._device = Source(), dtype, device
        with self._on_device():
            self._engine: Any = WeightTransferTrainerFactory.trainer_init(
                NCCLTrainerInitInfo(
                    master_address=_address_towards(host), master_port=_free_port(), world_size=1 + workers, rank=rank
                ),
                client=_Client(call),
                source=self._source,
            )

    def send(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Replace the server's weights, tensor by tensor. A collective call."""
        home = torch.cuda.current_stream(self._device) if self._device.type == "cuda" else None
        self._source.stream = _placed(tensors, self._dtype, self._device, home)
        try:
            with self._on_device():
                self._engine.send_weights()
        finally:
            self._source.stream = ()

    def _on_device(self) -> contextlib.AbstractContextManager[Any]:
        """vLLM sends from the thread's device, and a thread begins on the first."""
        return torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext()


class _Client:
    """What vLLM asks the server by. Its own client would take the system's proxy, and waits five minutes at most."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._call("/init_weight_transfer_engine", {"init_info": init_info})

    def shutdown_weight_transfer_engine(self) -> None:
        self._call("/shutdown_weight_transfer_engine", {})

    def start_weight_update(self) -> None:
        self._call("/start_weight_update", {})

    def update_weights(self, update_info: Any) -> None:
        self._call("/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._call("/finish_weight_update", {} if weight_version is None else {"weight_version": weight_version})


def _placed(
    tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype, device: torch.device, home: Any
) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors on the device, in the precision in which they travel.

    vLLM packs them on streams of its own. So they are made on ``home``, the stream of whoever sends, behind what is
    queued there (an optimizer's step, a gathering of shards), and the stream that packs waits for that. None: no GPU.
    """
    remaining = iter(tensors)
    while True:
        with torch.cuda.stream(home) if home is not None else contextlib.nullcontext():
            item = next(remaining, None)
            if item is None:
                return
            placed = item[1].detach().to(device, dtype).contiguous()
        if home is not None:
            packing = torch.cuda.current_stream(device)
            packing.wait_stream(home)
            placed.record_stream(packing)
        yield item[0], placed


def _address_towards(host: str) -> str:
    """Return this machine's address as ``host`` sees it. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return probe.getsockname()[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
