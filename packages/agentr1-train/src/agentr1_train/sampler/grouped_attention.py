"""Scaled dot-product attention for models whose query heads share keys, without copying the keys for each of them.

transformers repeats keys and values for every query head whenever there is a mask; while decoding that copy costs more
than the attention. Here the query heads of one key head become rows of one query instead: the same sums.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "agentr1_grouped_sdpa"


def grouped_attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attend as transformers' ``sdpa`` does.

    Shapes: query (B, H, n, D), key and value (B, K, S, D), mask (B, 1, n, S) or none -> (B, n, H, D).
    """
    batch, heads, length, _ = query.shape
    groups = heads // key.shape[1]
    causal = attention_mask is None and length > 1
    per_head = attention_mask is not None and attention_mask.shape[1] != 1
    if groups == 1 or causal or per_head or kwargs.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    folded = query.reshape(batch, key.shape[1], groups * length, query.shape[3])
    if attention_mask is not None and length > 1:
        attention_mask = attention_mask.repeat(1, 1, groups, 1)
    output = torch.nn.functional.scaled_dot_product_attention(
        folded, key, value, attn_mask=attention_mask, scale=kwargs.get("scaling")
    )
    return output.reshape(batch, heads, length, value.shape[3]).transpose(1, 2).contiguous(), None


def use_grouped_attention(model: Any) -> None:
    """Let a model that attends through ``sdpa`` with shared key heads attend through this module."""
    config = model.config.get_text_config(decoder=True)
    shared = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    if model.config._attn_implementation == "sdpa" and shared < config.num_attention_heads:
        model.set_attn_implementation(NAME)


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
