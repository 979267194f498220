"""Sends weights from the ranks' GPUs to a vLLM server's, by vLLM's own weight-transfer interface over NCCL.

Rank 0 sends; the other ranks only read along, since the engine gathers sharded weights on all of them. Nothing here
runs on a CPU: there the weights travel through a folder (``vllm_server.py``).
"""

import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor


class WeightTransfer:
    """A connection between rank 0 and every worker of the server, opened once and used for each update."""

    def __init__(
        self, url: str, workers: int, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, rank: int
    ) -> None:
        """Open it. A collective call.

        Args:
            url: of the server.
            workers: its GPUs.
            shapes: name and shape of every parameter, in the order in which updates bring them.
            dtype: in which they travel.
            rank: of this process.
        """
        from vllm.distributed.weight_transfer.base import (  # pyright: ignore[reportMissingImports]
            ParamMeta,
            WeightSource,
        )
        from vllm.distributed.weight_transfer.clients import (  # pyright: ignore[reportMissingImports]
            HTTPVLLMWeightSyncClient,
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
                return ((name, tensor.detach().to(dtype).contiguous()) for name, tensor in self.stream)

        host = urlsplit(url).hostname or "127.0.0.1"
        self._source = Source()
        self._engine: Any = WeightTransferTrainerFactory.trainer_init(
            NCCLTrainerInitInfo(
                master_address=_address_towards(host), master_port=_free_port(), world_size=1 + workers, rank=rank
            ),
            client=HTTPVLLMWeightSyncClient(url),
            source=self._source,
        )

    def send(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Replace the server's weights, tensor by tensor. A collective call."""
        self._source.stream = tensors
        try:
            self._engine.send_weights()
        finally:
            self._source.stream = ()


def _address_towards(host: str) -> str:
    """Return this machine's address as ``host`` sees it. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return probe.getsockname()[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
