"""The critic: one value a step, read at the last prompt token, before the step's response exists; or one a token.

A backbone without its language-model head, and a linear head that starts at zero: the first values are 0 whatever the
backbone, without a random draw. The loss is in ``losses.py``.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from agentr1_train.attention import run_model
from agentr1_train.batch import MicroBatch, Packing
from agentr1_train.config import ModelConfig
from agentr1_train.policy import load_model, prepare_training


class ValueHead(nn.Module):
    """Hidden state -> value, in float32 whatever the engine's precision. Shape: (..., H) -> (...)."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, hidden_size))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden.float(), self.weight.float(), self.bias.float()).squeeze(-1)


class CriticModel(nn.Module):
    """A backbone (``transformers.AutoModel``) and a value head.

    Args:
        backbone: gives the hidden states.
        by_token: read it where the policy is about to write each trained token (the first of them is at the last
            prompt token), not only there.
    """

    def __init__(self, backbone: Any, by_token: bool = False) -> None:
        super().__init__()
        self.backbone = backbone
        self.by_token = by_token
        self.head = ValueHead(backbone.config.get_text_config().hidden_size)

    def forward(self, batch: MicroBatch) -> Tensor:
        """Return each row's value at its last prompt token, or each trained token's. Shape: (R,) or (N,), float32."""
        output = run_model(self.backbone, batch)
        read_at = batch.token_index if self.by_token else batch.prompt_end
        return self.head(output.last_hidden_state.flatten(0, 1)[read_at])


def load_critic(
    settings: ModelConfig, dtype: str = "fp32", packing: Packing = "rows", by_token: bool = False, seed: int = 0
) -> CriticModel:
    """Load the backbone from ``critic_path``, or from the policy's path when that is empty.

    Raises:
        MissingFileError: there is no model at the path.
        ConfigError: the model cannot attend over trees.
    """
    backbone = load_model(settings.critic_path or settings.path, settings, dtype, head=False, packing=packing)
    prepare_training(backbone, settings, seed)
    return CriticModel(backbone, by_token)
