"""The policy: log-probabilities and entropies of the trained tokens, and of nothing else.

Logits are computed only at the positions that predict a trained token, once each: the hidden states are selected on
their way into the output layer, so whatever the model does to its logits afterwards (soft caps, scales) still holds.
Padding on the right needs no mask: causal attention never carries a later position into an earlier one. Sampling is not
here.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from agentr1_train.attention import refuse_unfit, run_model, use_tree_attention
from agentr1_train.batch import MicroBatch, Packing
from agentr1_train.config import ModelConfig
from agentr1_train.errors import ConfigError, MissingFileError
from agentr1_train.lora import add_adapter

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


class PolicyModel(nn.Module):
    """A causal language model whose forward gives (logp, entropy) of a micro-batch's trained tokens.

    Args:
        model: a transformers causal LM.
        temperature: the sampler's; logits are divided by it. 0 (greedy) counts as 1, as it does in the samplers.
        entropy_grad: let gradients flow through the entropy; without, it costs no memory in the backward pass.
    """

    def __init__(self, model: Any, temperature: float = 1.0, entropy_grad: bool = False) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature or 1.0
        self.entropy_grad = entropy_grad

    def forward(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Return log pi(target) and the entropy of pi at each trained token. Shapes: (N,), (N,), float32, nats."""

        places, row = batch.token_index.unique(return_inverse=True)  # in a tree, branches begin at one position

        def select(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor]:
            return (args[0].flatten(0, 1)[places].unsqueeze(0),)

        with _pre_hook(self.model.get_output_embeddings(), select):
            output = run_model(self.model, batch)
        return token_logprobs(output.logits[0], batch.targets, self.temperature, self.entropy_grad, row)


def token_logprobs(
    logits: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
    entropy_grad: bool = False,
    row: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return log softmax(logits / temperature) at the targets, and the entropy, in float32.

    Shapes: logits (U, V), targets (N,), row (N,) -> (N,), (N,). ``row`` tells which logits predict each target; by
    default each has its own.
    """
    row = torch.arange(len(targets), device=targets.device) if row is None else row
    scaled = logits.float() / temperature
    log_total = scaled.logsumexp(-1)
    logp = scaled[row, targets] - log_total[row]
    with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()):
        log_probs = scaled - log_total.unsqueeze(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
    return logp, entropy[row]


def load_policy(
    settings: ModelConfig,
    dtype: str = "fp32",
    temperature: float = 1.0,
    entropy_grad: bool = False,
    packing: Packing = "rows",
    seed: int = 0,
) -> PolicyModel:
    """Load ``settings.path`` as a policy to train on micro-batches packed by ``packing``; ``seed`` draws its adapters.

    Raises:
        MissingFileError: there is no model at the path.
        ConfigError: the model cannot attend over trees, or has no place for the adapters.
    """
    model = load_model(settings.path, settings, dtype, packing=packing)
    prepare_training(model, settings, seed)
    return PolicyModel(model, temperature, entropy_grad)


def prepare_training(model: Any, settings: ModelConfig, seed: int) -> None:
    """Put in what the recipe asks for beside the weights: adapters, recomputed activations."""
    if settings.lora_rank:
        add_adapter(model, settings, seed)
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})


def load_reference(
    settings: ModelConfig, dtype: str = "fp32", temperature: float = 1.0, packing: Packing = "rows"
) -> PolicyModel:
    """Load ``settings.path`` as the frozen reference: no parameter asks for a gradient."""
    model = load_model(settings.path, settings, dtype, packing=packing)
    return PolicyModel(model, temperature).requires_grad_(False).eval()


def load_model(
    path: str, settings: ModelConfig, dtype: str = "fp32", head: bool = True, packing: Packing = "rows"
) -> Any:
    """Load a transformers model without dropout: the trainer must see the distribution that was sampled from.

    Args:
        path: local folder or hub name.
        settings: attention implementation.
        dtype: ``fp32``, ``bf16`` or ``fp16``.
        head: with the language model's output layer (a causal LM), or the bare backbone.
        packing: ``tree`` lets the model attend over prefix trees.

    Raises:
        MissingFileError: there is no model at the path.
        ConfigError: transformers refuses the attention implementation or the model's kind, or a weight is missing:
            it would start at random; or the model cannot attend over trees.
    """
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    check_path(path)
    try:
        config = AutoConfig.from_pretrained(path)
        for name, value in vars(config).items():
            if name.endswith(("dropout", "pdrop")) and isinstance(value, float):
                setattr(config, name, 0.0)
        if packing == "tree":
            refuse_unfit(config, path)
        kind: Any = AutoModelForCausalLM if head else AutoModel
        with quiet_transformers():
            model, report = kind.from_pretrained(
                path,
                config=config,
                dtype=DTYPES[dtype],
                attn_implementation=settings.attention,
                output_loading_info=True,
            )
    except OSError as error:
        raise MissingFileError(
            f"no model can be loaded from {path!r}: {error} A local folder needs config.json and weights; "
            "convert a GGUF file with: agentr1-train import-gguf SOURCE FOLDER"
        ) from error
    except (ValueError, ImportError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"model {path!r} with attention {settings.attention!r}: {_in_short(error)}") from error
    lacking = sorted(map(str, report["missing_keys"])) + sorted(map(str, report["mismatched_keys"]))
    if lacking:
        raise ConfigError(f"{path!r} lacks {len(lacking)} weights of {type(model).__name__}, such as {lacking[0]}.")
    if packing == "tree":
        use_tree_attention(model)
    return model


def _in_short(error: Exception) -> str:
    """Return what transformers says; where it asks to open an issue, what to do here."""
    if "does not support an attention implementation" not in str(error):
        return str(error)
    return (
        "transformers has no such attention for this kind of model. Set model.attention = 'eager' and engine.packing = "
        "'merged', or take a model that attends through AttentionInterface, as Llama, Qwen2 and Qwen3 do."
    )


def check_path(path: str) -> None:
    """Refuse what is neither a folder with a model nor the shape of a hub name, before anything is fetched."""
    if not path:
        raise ConfigError("model.path is empty: give a local folder, or a hub name.")
    folder = Path(path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise MissingFileError(f"{folder} is no model folder: it has no config.json.")
    elif folder.exists():
        raise MissingFileError(f"model.path = {path!r} is a file. Give the folder that holds config.json and weights.")
    elif path.startswith((".", "/", "~")) or not _HUB_NAME.fullmatch(path):
        raise MissingFileError(f"no model folder at {path}. Give a folder that holds config.json, or a hub name.")


@contextmanager
def _pre_hook(module: nn.Module, hook: Any) -> Iterator[None]:
    handle = module.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers from drawing a progress bar, and from reporting what it loaded, on every rank."""
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
