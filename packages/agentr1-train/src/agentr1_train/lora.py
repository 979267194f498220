"""Low-rank adapters (LoRA, Hu et al. 2021, arXiv 2106.09685) by peft, merged wherever weights leave the trainer.

The model stays the transformers model it was: peft's layers are put inside it, its own weights are frozen, and names
differ by ``.base_layer``. Samplers and exports get ``W + alpha / r * B A`` under plain names and know of no adapter.
With the adapter scaled to nothing the model is the one the run began with: the reference costs no second copy.
The only module that imports peft.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from agentr1_train.config import ModelConfig
from agentr1_train.errors import ConfigError

_ADAPTER = "default"  # the name that peft gives
_A, _B, _BASE = f".lora_A.{_ADAPTER}.weight", f".lora_B.{_ADAPTER}.weight", ".base_layer."


def add_adapter(model: Any, settings: ModelConfig, seed: int) -> None:
    """Put adapters into a transformers model, in place, and freeze everything else.

    B starts at zero, so the model computes what it did; A is drawn from ``seed``, the same on every rank.

    Raises:
        ConfigError: peft is not installed, or the model has none of ``settings.lora_targets``.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ConfigError(
            f"model.lora_rank = {settings.lora_rank} needs peft ({error}): pip install 'agentr1-train[lora]'."
        ) from error
    model.requires_grad_(False)
    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha or 2 * settings.lora_rank,  # type: ignore[arg-type]
        target_modules=list(settings.lora_targets) or _projections(model),
        lora_dropout=0.0,  # the trainer must see the distribution that was sampled from
    )
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            inject_adapter_in_model(config, model, adapter_name=_ADAPTER)
    except ValueError as error:
        linear = ", ".join(sorted({name.rpartition(".")[2] for name in _linear(model)}))
        raise ConfigError(
            f"model.lora_targets = {list(settings.lora_targets)}: no adapter can be put there. "
            f"Its linear layers are called {linear}."
        ) from error
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_adapter(name))


def is_adapter(name: str) -> bool:
    """Return whether a parameter belongs to an adapter."""
    return ".lora_A." in name or ".lora_B." in name


def has_adapter(module: nn.Module) -> bool:
    return any(is_adapter(name) for name, _ in module.named_parameters())


def plain_name(name: str) -> str:
    """Return what a parameter is called in the model without adapters."""
    return name.replace(_BASE, ".")


def merged(
    module: nn.Module, adapters: Mapping[str, Tensor], weights: Iterable[tuple[str, Tensor]]
) -> Iterator[tuple[str, Tensor]]:
    """Yield weights under their plain names, with the adapters added to those that have one.

    Args:
        module: what the names belong to.
        adapters: the adapters' tensors by name, whole.
        weights: (name, tensor) of everything; adapters among them are left out.
    """
    scales = {name: layer.scaling[_ADAPTER] for name, layer in _adapted(module)}
    for name, tensor in weights:
        if is_adapter(name):
            continue
        layer, found, rest = name.rpartition(_BASE)
        if found and rest == "weight":
            # In float32: in half precision a small update would be lost in the product already.
            update = adapters[layer + _B].float() @ adapters[layer + _A].float()
            tensor = (tensor.float() + scales[layer] * update).to(tensor.dtype)
        yield plain_name(name), tensor


@contextlib.contextmanager
def without_adapter(module: nn.Module) -> Iterator[None]:
    """Let a module compute what it would without its adapters."""
    layers = [layer for _, layer in _adapted(module)]
    scales = [layer.scaling[_ADAPTER] for layer in layers]
    try:
        for layer in layers:
            layer.scaling[_ADAPTER] = 0.0
        yield
    finally:
        for layer, scale in zip(layers, scales, strict=True):
            layer.scaling[_ADAPTER] = scale


def _adapted(module: nn.Module) -> list[tuple[str, Any]]:
    return [(name, layer) for name, layer in module.named_modules() if hasattr(layer, "lora_A")]


def _linear(model: Any) -> list[str]:
    return [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]


def _projections(model: Any) -> list[str]:
    """Return the linear layers of the blocks: all but the output layer."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    return [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and layer is not head]
