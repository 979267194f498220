"""vLLM's interface for weights over NCCL takes what we give it, as far as a machine without GPUs can tell.

A rank that only reads along opens no NCCL group, and so runs here; what the sender would send is read through vLLM's
own check of it. Runs in the environment that ``make setup-vllm`` makes.
"""

from dataclasses import asdict
from typing import Any

import pytest
import torch
from agentr1_train.sampler.vllm_transfer import WeightTransfer

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),  # those of vLLM and of what it imports
]
SHAPES = {"embed": (5, 3), "layer.0.weight": (3, 3), "norm": (3,)}


def weights() -> list[tuple[str, torch.Tensor]]:
    """In float32, one of them a view that is not contiguous; the same each time."""
    torch.manual_seed(0)
    made = {name: torch.rand(shape) for name, shape in SHAPES.items()}
    return [(name, made[name].T.contiguous().T if len(SHAPES[name]) == 2 else made[name]) for name in SHAPES]


@pytest.fixture
def calls() -> list[tuple[str, Any]]:
    return []


@pytest.fixture
def transfer(calls: list[tuple[str, Any]]) -> WeightTransfer:
    def call(path: str, body: Any) -> None:
        calls.append((path, body))

    return WeightTransfer("http://127.0.0.1:1", call, SHAPES, torch.bfloat16, torch.device("cpu"), workers=2, rank=1)


def test_a_rank_that_does_not_send_reads_the_whole_stream(
    transfer: WeightTransfer, calls: list[tuple[str, Any]]
) -> None:
    """Else its part of a gathering would be missing."""
    for _ in range(2):
        stream = iter(weights())
        transfer.send(stream)
        assert next(stream, None) is None
    assert calls == []


def test_what_is_sent_is_what_was_announced(transfer: WeightTransfer) -> None:
    """In another precision than the trainer's; vLLM's check names the first tensor that differs."""
    engine = transfer._engine
    meta = transfer._source.metadata()
    seen: list[tuple[str, torch.Tensor]] = []
    engine._broadcast = lambda source, told: seen.extend(engine._checked_iter(source, told))
    transfer.send(weights())
    assert [name for name, _ in seen] == list(SHAPES)
    for (_, sent), (_, wanted) in zip(seen, weights(), strict=True):
        assert sent.is_contiguous()
        assert torch.equal(sent, wanted.to(torch.bfloat16))
    with pytest.raises(ValueError, match="declared 3"):
        transfer.send(weights()[:2])
    assert [(item.name, tuple(item.shape), item.dtype) for item in meta] == [
        (name, shape, torch.bfloat16) for name, shape in SHAPES.items()
    ]


def test_the_server_is_asked_by_the_paths_that_vllm_serves(
    transfer: WeightTransfer, calls: list[tuple[str, Any]]
) -> None:
    from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferUpdateInfo
    from vllm.entrypoints.rl.online.api_router import router

    client: Any = transfer._engine.client
    update = asdict(NCCLWeightTransferUpdateInfo(names=["a"], dtype_names=["bfloat16"], shapes=[[1]]))
    client.init_weight_transfer_engine({"master_port": 1})
    client.start_weight_update()
    client.update_weights(update)
    client.finish_weight_update()
    client.finish_weight_update("3")
    client.shutdown_weight_transfer_engine()
    served = {route.path for route in router.routes if "POST" in route.methods}
    assert {path for path, _ in calls} <= served
    assert calls[2] == ("/update_weights", {"update_info": update})
    assert calls[4] == ("/finish_weight_update", {"weight_version": "3"})
