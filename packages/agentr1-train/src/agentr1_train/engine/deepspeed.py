"""Runs a model under DeepSpeed: forward and backward over micro-batches, then one optimizer step.

What is fixed here, because ranks hang or drift otherwise: every rank makes the same number of passes (fillers make up
the difference); the loss already holds global denominators, so it is multiplied by the number of ranks to undo
DeepSpeed's mean; a loss that is not finite on any rank stops all of them, together, before the optimizer; a step that
DeepSpeed leaves out is reported or refused, never passed over. Schedules of the learning rate are the caller's.
"""

import contextlib
import gc
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from agentr1_train import distributed
from agentr1_train.batch import MicroBatch, equalize
from agentr1_train.config import EngineConfig, OptimizerConfig
from agentr1_train.engine.build import ensure_kernel, unlink_buffer, use_extensions_dir
from agentr1_train.engine.config import deepspeed_config
from agentr1_train.engine.release import release
from agentr1_train.errors import CheckpointError, DeviceError, NonFiniteLossError, OutOfMemoryError
from agentr1_train.exhausted import is_out_of_memory
from agentr1_train.lora import without_adapter
from agentr1_train.losses import LossOutput
from agentr1_train.metrics import merge

GATHER_ELEMENTS = 50_000_000
"""Elements of sharded parameters gathered together: a bound on the memory a weight sync needs, and on its messages."""

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

LossFn = Callable[[Any, MicroBatch], LossOutput]
"""(what the module's forward gave, the micro-batch on the device) -> loss and sums."""


class DeepSpeedEngine:
    """One trained model: its weights, gradients and optimizer, sharded as ``settings.zero_stage`` says.

    Args:
        module: takes a ``MicroBatch``; every parameter that asks for a gradient is trained.
        settings: ZeRO stage and precision.
        optimizer: AdamW's constants and the bound on the gradient norm.
        device: from ``distributed.init``, which must have been called.
        name: stands in error messages: ``policy``, ``critic``.

    Raises:
        DeviceError: the precision is not supported on the device, or there is nothing to offload from.
    """

    def __init__(
        self,
        module: nn.Module,
        settings: EngineConfig,
        optimizer: OptimizerConfig,
        device: torch.device,
        name: str = "policy",
    ) -> None:
        deepspeed = _import_deepspeed(settings, device)
        _check_offload(settings, device)
        self.name, self.settings, self.device = name, settings, device
        self._frozen = not all(parameter.requires_grad for parameter in module.parameters())
        self._adamw = torch.optim.AdamW(
            [parameter for parameter in module.parameters() if parameter.requires_grad],
            lr=0.0,
            betas=optimizer.betas,
            eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
            fused=True,
        )
        # DeepSpeed clips without telling the norm when it neither shards nor scales: there we clip.
        self._clips_here = settings.zero_stage == 0 and settings.dtype == "fp32"
        self._max_grad_norm = optimizer.max_grad_norm
        self._grad_norm = 0.0
        if self._clips_here:
            self._adamw.register_step_pre_hook(self._clip)
        with _quiet():
            self._engine, *_ = deepspeed.initialize(
                model=module.train(),
                optimizer=self._adamw,
                config=deepspeed_config(settings, 0.0 if self._clips_here else optimizer.max_grad_norm),
                dist_init_required=False,
            )

    @property
    def module(self) -> nn.Module:
        return self._engine.module

    def evaluate(self, batches: Sequence[MicroBatch]) -> list[Any]:
        """Return what the module's forward gives for each micro-batch, without gradients. A collective call."""
        self._engine.eval()
        try:
            return _evaluate(self._engine, batches, self.device)
        finally:
            self._engine.train()

    def forward_backward(self, batches: Sequence[MicroBatch], loss_fn: LossFn) -> dict[str, float]:
        """Add the gradient of the micro-batches' summed loss to what was accumulated since the last step.

        Returns:
            The sums of ``loss_fn``, merged over micro-batches and ranks: the same on every rank. A collective call.

        Raises:
            NonFiniteLossError: on every rank, when any rank met a loss that is not finite.
            OutOfMemoryError: on this rank; its launcher ends the others.
        """
        sums: list[dict[str, float]] = []
        broken: list[str] = []
        world = distributed.world_size()
        for at, batch in enumerate(_in_step(batches)):
            with _within_memory(self.name, at, batch):
                moved = batch.to(self.device)
                output = loss_fn(self._engine(moved), moved)
                if not math.isfinite(output.loss.item()):
                    broken.append(f"micro-batch {at} ({len(batch.rows)} rows): {output.loss.item()}")
                # A rank that stopped here would leave the others waiting in the backward pass.
                self._engine.backward(output.loss * world)
            if batch.rows:
                sums.append({name: value.item() for name, value in output.sums.items()})
        gathered = distributed.all_gather_object((sums, broken))
        faults = [f"rank {rank}, {fault}" for rank, (_, found) in enumerate(gathered) for fault in found]
        if faults:
            raise NonFiniteLossError(
                f"the loss of the {self.name} is not finite: {'; '.join(faults[:4])}. No weight was changed. Lower the "
                "learning rate, or look for NaN rewards and log-probabilities in the last rollout file."
            )
        return merge([item for found, _ in gathered for item in found])

    def optim_step(self, lr: float) -> dict[str, float]:
        """Apply the accumulated gradient once, and clear it. A collective call.

        Returns:
            ``grad_norm`` before clipping, over all ranks, and ``skipped``: 1.0 when fp16 overflowed, the loss scale was
            lowered and the weights stayed (``grad_norm`` is then infinite).

        Raises:
            NonFiniteLossError: the gradient is not finite, in fp32 or bf16. No weight was changed.
        """
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._engine.step()
        skipped = not self._engine.was_step_applied()
        norm = self._grad_norm if self._clips_here else float(self._engine.get_global_grad_norm() or 0.0)
        if skipped and self.settings.dtype != "fp16":
            raise self._non_finite_gradient()
        return {"grad_norm": math.inf if skipped else norm, "skipped": float(skipped)}

    def named_weights(self, wanted: Callable[[str], bool] | None = None) -> Iterator[tuple[str, Tensor]]:
        """Yield every parameter once, whole, on every rank. A collective call; a tensor is valid until the next.

        ``wanted`` chooses by name; None takes all.

        Tied parameters come under their first name. Under ZeRO-3 parameters are gathered in buckets, never all at once.
        """
        named = [item for item in self.module.named_parameters() if wanted is None or wanted(item[0])]
        if self.settings.zero_stage < 3:
            yield from ((name, parameter.data) for name, parameter in named)
            return
        import deepspeed

        for bucket in _buckets(named):
            with deepspeed.zero.GatheredParameters([parameter for _, parameter in bucket]):
                yield from ((name, parameter.data) for name, parameter in bucket)

    def save(self, folder: Path) -> None:
        """Write weights, optimizer and loss scale of this rank's shard under ``folder``. A collective call.

        What is frozen is not written: it is in the folder that the model was loaded from.
        """
        with _quiet():
            self._engine.save_checkpoint(
                str(folder), tag=self.name, save_latest=False, exclude_frozen_parameters=self._frozen
            )

    def load(self, folder: Path) -> None:
        """Restore what ``save`` wrote. A collective call.

        Raises:
            CheckpointError: there is nothing of this engine in the folder.
        """
        with _quiet():
            path, _ = self._engine.load_checkpoint(
                str(folder), tag=self.name, load_lr_scheduler_states=False, load_module_strict=not self._frozen
            )
        if path is None:
            raise CheckpointError(f"{folder} holds no {self.name}; the checkpoint is incomplete.")

    def close(self) -> None:
        """Give the memory of weights, gradients and optimizer back; neither the engine nor its module works after."""
        release(self._engine)
        del self._engine, self._adamw
        gc.collect()

    def _clip(self, *_: Any) -> None:
        """Note the norm of the averaged gradient and bound it, right before AdamW reads it."""
        bound = self._max_grad_norm or math.inf
        parameters = self._adamw.param_groups[0]["params"]
        self._grad_norm = torch.nn.utils.clip_grad_norm_(parameters, bound).item()
        if not math.isfinite(self._grad_norm):
            raise self._non_finite_gradient()

    def _non_finite_gradient(self) -> NonFiniteLossError:
        return NonFiniteLossError(
            f"the gradient of the {self.name} is not finite though its loss was. No weight was changed. Lower the "
            "learning rate, or set engine.dtype = 'fp32'."
        )


class AdapterFree:
    """The model that an engine trains, without its adapters: the reference of a run with LoRA, at no copy."""

    def __init__(self, engine: DeepSpeedEngine) -> None:
        self._engine = engine

    def evaluate(self, batches: Sequence[MicroBatch]) -> list[Any]:
        """Return what the module's forward gives for each micro-batch. A collective call."""
        with without_adapter(self._engine.module):
            return self._engine.evaluate(batches)


class FrozenModel:
    """A model that is only evaluated: the reference. Whole on every rank, or sharded under ZeRO-3.

    Args:
        module: takes a ``MicroBatch``.
        settings: ZeRO stage and precision.
        device: from ``distributed.init``.

    Raises:
        DeviceError: the precision is not supported on the device.
    """

    def __init__(self, module: nn.Module, settings: EngineConfig, device: torch.device) -> None:
        module.requires_grad_(False).eval()
        self.device = device
        self._sharded = settings.zero_stage == 3
        if self._sharded:
            deepspeed = _import_deepspeed(settings, device)
            config = deepspeed_config(settings, 0.0, trainable=False)
            with _quiet():
                self._forward, *_ = deepspeed.initialize(model=module, config=config, dist_init_required=False)
            self._forward.eval()
        else:
            _check_precision(settings, device)
            self._forward = module.to(device, _DTYPES[settings.dtype])

    def evaluate(self, batches: Sequence[MicroBatch]) -> list[Any]:
        """Return what the module's forward gives for each micro-batch. A collective call."""
        return _evaluate(self._forward, batches, self.device)

    def close(self) -> None:
        """Give the memory of the weights back."""
        if self._sharded:
            release(self._forward)
        del self._forward
        gc.collect()


def _evaluate(forward: Callable[[MicroBatch], Any], batches: Sequence[MicroBatch], device: torch.device) -> list[Any]:
    outputs = []
    with torch.no_grad():
        for at, batch in enumerate(_in_step(batches)):
            with _within_memory("evaluation", at, batch):
                outputs.append(forward(batch.to(device)))
    return outputs[: len(batches)]


@contextlib.contextmanager
def _within_memory(name: str, at: int, batch: MicroBatch) -> Iterator[None]:
    """Say in one line which micro-batch did not fit, and what to do."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(
            f"micro-batch {at} of the {name} ({len(batch.rows)} rows, {batch.input_ids.numel()} tokens) does not fit "
            "into memory. No weight was changed. Lower engine.micro_batch_tokens (a longer row stands alone); --resume "
            "continues."
        ) from error


def _in_step(batches: Sequence[MicroBatch]) -> list[MicroBatch]:
    """Return the micro-batches and as many fillers as the busiest rank asks for; at least one pass."""
    longest = distributed.all_reduce({"passes": float(len(batches))}, "max")["passes"]
    return equalize(batches, max(1, int(longest)))


def _buckets(named: Sequence[tuple[str, Any]]) -> Iterator[list[tuple[str, Any]]]:
    """Cut sharded parameters into runs of at most ``GATHER_ELEMENTS``, in order; a larger one stands alone."""
    bucket: list[tuple[str, Any]] = []
    size = 0
    for name, parameter in named:
        if bucket and size + parameter.ds_numel > GATHER_ELEMENTS:
            yield bucket
            bucket, size = [], 0
        bucket.append((name, parameter))
        size += parameter.ds_numel
    if bucket:
        yield bucket


def _import_deepspeed(settings: EngineConfig, device: torch.device) -> Any:
    """Import DeepSpeed for this device, compile its kernel if need be, and join it to our process group.

    Raises:
        DeviceError: DeepSpeed runs on another device, or does not support the precision there.
    """
    use_extensions_dir()
    # torch 2.13 deprecates names that DeepSpeed 0.19 calls once a bucket, and one that torch itself uses on import.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    deepspeed.utils.logger.setLevel(logging.WARNING)
    accelerator: Any = get_accelerator()
    if accelerator.device_name() != device.type:
        raise DeviceError(
            f"the run is on {device.type!r} but DeepSpeed chose {accelerator.device_name()!r}. Set "
            f"DS_ACCELERATOR={device.type}, or call distributed.init before DeepSpeed is imported."
        )
    _check_precision(settings, device)
    if not deepspeed.comm.is_initialized():
        if device.type == "cpu":
            ensure_kernel()
        with _quiet():
            deepspeed.init_distributed(verbose=False)
        if device.type == "cpu":
            distributed.barrier()
            unlink_buffer(distributed.rank())
    return deepspeed


def _quiet() -> contextlib.AbstractContextManager[Any]:
    """Drop what DeepSpeed prints on standard output; errors and warnings go to standard error and stay."""
    return contextlib.redirect_stdout(None)


def _check_offload(settings: EngineConfig, device: torch.device) -> None:
    if settings.offload_optimizer and device.type == "cpu":
        raise DeviceError(
            "engine.offload_optimizer = true on engine.device = 'cpu': the optimizer is in the host's memory already. "
            "Set it to false."
        )


def _check_precision(settings: EngineConfig, device: torch.device) -> None:
    """Raise DeviceError unless the device computes in the precision."""
    if settings.dtype == "fp32":
        return
    from deepspeed.accelerator import get_accelerator

    accelerator: Any = get_accelerator()
    supported = {"bf16": accelerator.is_bf16_supported, "fp16": accelerator.is_fp16_supported}[settings.dtype]()
    if not supported:
        raise DeviceError(
            f"engine.dtype = {settings.dtype!r} is not supported on this machine's {device.type}. Use 'fp32'."
        )
