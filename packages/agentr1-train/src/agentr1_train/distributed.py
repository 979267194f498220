"""Ranks, devices and the few collectives the trainer needs.

Everything works in a single process that no launcher started: the world is then one rank. DeepSpeed is not imported
here; it finds the process group that ``init`` made. Gradients and sharded weights are the engine's.
"""

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from agentr1_train.errors import DeviceError

DEVICES = ("auto", "cpu", "cuda")

PATIENCE = timedelta(hours=1)
"""How long a rank waits in a collective for the slowest one, whose episodes may take long; NCCL's own ten minutes would
end such a run. A rank that died is the launcher's to notice, at once."""

Gather = Callable[[Any], list[Any]]
"""Hands each rank the values of all ranks, in rank order: ``all_gather_object``, or what ``side_gather`` returned."""


def init(device: str = "auto", threads: int = 0) -> torch.device:
    """Join the process group that the launcher describes, or make one of a single rank; a second call changes nothing.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``.
        threads: torch threads of this rank; 0 divides the usable cores by the ranks on this host.

    Raises:
        DeviceError: the device is not there.
    """
    place = resolve_device(device)
    torch.set_num_threads(threads or default_threads())
    os.environ["DS_ACCELERATOR"] = place.type  # read by DeepSpeed when it is imported
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if not dist.is_initialized():
        backend = "nccl" if place.type == "cuda" else "gloo"
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            dist.init_process_group(backend, timeout=PATIENCE)
        else:
            os.environ["LOCAL_RANK"] = "0"  # DeepSpeed asks for it
            dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    return place


def shutdown() -> None:
    """Leave the process group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def resolve_device(name: str) -> torch.device:
    """Return this rank's device.

    Raises:
        DeviceError: an unknown name, a device that torch does not see, or more ranks than devices.
    """
    if name not in DEVICES:
        raise DeviceError(f"engine.device = {name!r}: legal values are {', '.join(DEVICES)}.")
    forced = os.environ.get("DS_ACCELERATOR", "")
    if name == "cpu" or (name == "auto" and (forced == "cpu" or not torch.cuda.is_available())):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise DeviceError(
            f"engine.device = {name!r}, but torch {torch.__version__} sees no CUDA device. "
            "Set engine.device to 'cpu' or 'auto', or install a CUDA build of torch on a machine with a GPU."
        )
    if forced == "cpu":
        raise DeviceError(
            f"engine.device = {name!r}, but DS_ACCELERATOR=cpu. Unset the variable or set engine.device = 'cpu'."
        )
    if local_rank() >= torch.cuda.device_count():
        raise DeviceError(
            f"local rank {local_rank()} has no device: torch sees {torch.cuda.device_count()}. "
            "Launch at most one rank a device (deepspeed --num_gpus N)."
        )
    return torch.device("cuda", local_rank())


def default_threads() -> int:
    """Return OMP_NUM_THREADS, or the cores this process may use divided by the ranks on this host; at least 1."""
    if "OMP_NUM_THREADS" in os.environ:
        return max(1, int(os.environ["OMP_NUM_THREADS"]))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // local_world_size())


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))


def local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def local_world_size() -> int:
    """Ranks on this host: LOCAL_SIZE under ``deepspeed``, LOCAL_WORLD_SIZE under ``torchrun``."""
    return int(os.environ.get("LOCAL_SIZE") or os.environ.get("LOCAL_WORLD_SIZE") or "1")


def is_main() -> bool:
    """True on the one rank that writes files and prints."""
    return rank() == 0


def barrier() -> None:
    if world_size() > 1:
        dist.barrier()


def all_gather_object(value: Any, group: dist.ProcessGroup | None = None) -> list[Any]:
    """Return every rank's value, ordered by rank. Values travel as pickles: for records, not for weights."""
    if world_size() == 1:
        return [value]
    gathered: list[Any] = [None] * world_size()
    dist.all_gather_object(gathered, value, group)
    return gathered


def side_gather() -> Gather:
    """Return an ``all_gather_object`` for one other thread of every rank. A collective call, in the main thread.

    Collectives find each other by their order alone, so two threads must not share a process group: this one has a
    group of its own, through the host's memory. The group lasts as long as the process.
    """
    if world_size() == 1:
        return all_gather_object
    group = cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=PATIENCE))
    return partial(all_gather_object, group=group)


def broadcast_object(value: Any, source: int = 0) -> Any:
    """Return rank ``source``'s value on every rank."""
    if world_size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=source)
    return box[0]


def all_reduce(values: Mapping[str, float], how: Literal["sum", "max", "min"] = "sum") -> dict[str, float]:
    """Reduce named numbers over ranks, in float64. Every rank must give the same names; the order is free."""
    if world_size() == 1 or not values:
        return dict(values)
    names = sorted(values)
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    numbers = torch.tensor([values[name] for name in names], dtype=torch.float64, device=device)
    dist.all_reduce(numbers, {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}[how])
    return dict(zip(names, numbers.tolist(), strict=True))
