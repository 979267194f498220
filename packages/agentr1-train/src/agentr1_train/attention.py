"""Attention over prefix trees, chain by chain, for models that attend through transformers' ``AttentionInterface``.

A token attends to its path: the chains above its own and, causally, its own. In depth-first order what hangs below a
chain follows it without a gap, so one call a chain serves them all: the queries of the chain and of everything below
it, against the chain's keys. Under a causal mask aligned at the top left the chain itself sees a triangle and whatever
is below sees all of it. A query meets one call for each chain of its path; the results are joined by their
log-sum-exp, which is exact (Milakov and Gimelshein 2018, arXiv 1805.02867). No key is copied and no pair of tokens from
different branches is computed. Projections, MLP and norms know nothing of this: they see one line of tokens.

On a CPU this is torch's flash kernel. Elsewhere each chain attends by itself, over its keys and copies of those above,
by whatever kernel ``scaled_dot_product_attention`` chooses: correct, not tuned.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from agentr1_train.batch import MicroBatch
from agentr1_train.errors import ConfigError
from agentr1_train.prefix_tree import Segment, plant

NAME = "agentr1_tree"

_REMEDY = "Set engine.packing = 'merged', which computes each trajectory's history once."

_ALIBI = ("bloom", "mpt")
"""Kinds of models whose configuration does not say it."""
_RECURRENT = {"linear_attention", "mamba", "hybrid", "recurrent"}

_flash: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_flash_backward: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


def run_model(model: Any, batch: MicroBatch) -> Any:
    """Run a transformers model over the tokens of a micro-batch and return its output.

    Raises:
        ConfigError: the micro-batch is a tree and ``use_tree_attention`` was not called on the model.
    """
    if batch.segments is None:
        return model(input_ids=batch.input_ids, position_ids=batch.position_ids, use_cache=False)
    if model.config._attn_implementation != NAME:
        raise ConfigError(
            f"{type(model).__name__} attends by {model.config._attn_implementation!r}, which would let branches see "
            "each other. Load it with packing = 'tree', or pack in rows."
        )
    return model(input_ids=batch.input_ids, position_ids=batch.position_ids, use_cache=False, segments=batch.segments)


def use_tree_attention(model: Any) -> None:
    """Let a model attend over trees; micro-batches without segments go through ``sdpa`` as before.

    A tree of a few tokens is tried against its rows, so that whatever mixes tokens in another way is found out.

    Raises:
        ConfigError: the model has a sliding window, ALiBi or recurrent layers, or does not attend through
            ``AttentionInterface`` alone.
    """
    refuse_unfit(model.config, type(model).__name__)
    reason = _own_way(model)
    if reason:
        raise ConfigError(f"{type(model).__name__} cannot train on prefix trees: {reason}. {_REMEDY}")
    model.set_attn_implementation(NAME)
    try:
        difference, scale = _try_out(model)
    except TypeError as error:
        raise ConfigError(f"{type(model).__name__} cannot train on prefix trees: {error}. {_REMEDY}") from error
    if not difference <= scale * (1e-3 if model.dtype in (torch.float32, torch.float64) else 0.1):
        raise ConfigError(
            f"{type(model).__name__} cannot train on prefix trees: on a tree it gives other outputs than on its rows "
            f"(by {difference:.2g} of {scale:.2g}), so something beside attention mixes tokens. {_REMEDY}"
        )


def tree_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    segments: Sequence[Segment] | None = None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend along the paths of a tree; without ``segments``, as ``sdpa`` does.

    Shapes: query (1, H, N, D), key and value (1, K, N, D) with K a divisor of H -> (1, N, H, D).

    Raises:
        ConfigError: the model asks for something that trees do not have: dropout, a window, biases, sinks, soft caps.
    """
    if segments is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    for name in ("dropout", "sliding_window", "position_bias", "softcap", "s_aux"):
        if kwargs.get(name) is not None and kwargs.get(name) != 0.0:
            raise ConfigError(
                f"{type(module).__name__} cannot train on prefix trees: it attends with {name}. {_REMEDY}"
            )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if query.device.type == "cpu" and query.shape[-1] == value.shape[-1] and _flash and _flash_backward:
        output = _FlashTree.apply(query, key, value, segments, scale)
    else:
        output = chain_by_chain(query, key, value, segments, scale)
    return output.transpose(1, 2).contiguous(), None


def chain_by_chain(query: Tensor, key: Tensor, value: Tensor, segments: Sequence[Segment], scale: float) -> Tensor:
    """Attend on any device: each chain against the keys of its path, the last of them causally.

    Shapes: query (1, H, N, D), key and value (1, K, N, D) -> (1, H, N, D).
    """
    shared = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
    above: list[Segment] = []
    pieces = []
    for chain in segments:
        while above and chain.start >= above[-1].subtree_end:
            above.pop()
        above.append(chain)
        keys, values = (torch.cat([t[:, :, link.start : link.end] for link in above], 2) for t in (key, value))
        mask: Any = causal_lower_right(chain.end - chain.start, keys.shape[2])
        queries = query[:, :, chain.start : chain.end]
        pieces.append(scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale))
    return torch.cat(pieces, 2)


class _FlashTree(torch.autograd.Function):
    """One call of the CPU flash kernel a chain, joined by log-sum-exp.

    The kernel's own backward pass needs only the output and the log-sum-exp of a query; given those of the whole path,
    it returns that chain's share of the gradient. Each key belongs to one call, so only queries add up.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, segments: Sequence[Segment], scale: float
    ) -> Tensor:
        q, k, v = _by_key_head(query, key, value)
        exact = torch.promote_types(query.dtype, torch.float32)
        out = _token_major(q, exact)
        lse = torch.empty(q.shape[:3], dtype=exact)
        for chain, fresh in _visits(segments):
            seen, own = slice(chain.start, chain.subtree_end), slice(chain.start, chain.end)
            part, part_lse = _flash(q[:, :, seen], k[:, :, own], v[:, :, own], 0.0, True, scale=scale)
            if fresh:
                out[:, :, seen], lse[:, :, seen] = part, part_lse
                continue
            out[:, :, seen].lerp_(part.to(exact), torch.sigmoid(part_lse - lse[:, :, seen]).unsqueeze(-1))
            lse[:, :, seen] = torch.logaddexp(lse[:, :, seen], part_lse)
        out = out.to(query.dtype)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.segments, ctx.scale = segments, scale
        return out.flatten(0, 1).unsqueeze(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        query, key, value, out, lse = ctx.saved_tensors
        q, k, v = _by_key_head(query, key, value)
        grad = grad[0].unflatten(0, q.shape[:2])
        grad_q = _token_major(q, torch.promote_types(query.dtype, torch.float32))
        grad_k, grad_v = torch.empty_like(key), torch.empty_like(value)
        for chain, fresh in _visits(ctx.segments):
            seen, own = slice(chain.start, chain.subtree_end), slice(chain.start, chain.end)
            part_q, part_k, part_v = _flash_backward(
                grad[:, :, seen],
                q[:, :, seen],
                k[:, :, own],
                v[:, :, own],
                out[:, :, seen],
                lse[:, :, seen],
                0.0,
                True,
                scale=ctx.scale,
            )
            if fresh:
                grad_q[:, :, seen] = part_q
            else:
                grad_q[:, :, seen] += part_q
            grad_k[0, :, own], grad_v[0, :, own] = part_k.sum(1), part_v.sum(1)
        return grad_q.to(query.dtype).flatten(0, 1).unsqueeze(0), grad_k, grad_v, None, None


def _visits(segments: Sequence[Segment]) -> Iterator[tuple[Segment, bool]]:
    """Yield each chain, and whether it is a root: then its queries have met no other chain before."""
    reached = 0
    for chain in segments:
        yield chain, chain.start >= reached
        reached = max(reached, chain.subtree_end)


def _by_key_head(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return views in which a key head is a batch entry that its query heads share. Shape: (K, H / K, N, D) each."""
    heads, shared = key.shape[1], query.shape[1] // key.shape[1]
    grouped = query[0].unflatten(0, (heads, shared))
    keys, values = (t[0].unsqueeze(1).expand(-1, shared, -1, -1) for t in (key, value))
    return grouped, keys, values


def _token_major(like: Tensor, dtype: torch.dtype) -> Tensor:
    """Return an empty tensor of the shape (K, G, N, D) whose memory holds token after token, as the model reads it."""
    heads, shared, tokens, width = like.shape
    return torch.empty(tokens, heads, shared, width, dtype=dtype).permute(1, 2, 0, 3)


def refuse_unfit(config: Any, name: str) -> None:
    """Refuse a model whose configuration says that it cannot attend over trees, before its weights are read.

    Raises:
        ConfigError: it has ALiBi, a sliding window, recurrent layers, or layers of another kind that mix tokens.
    """
    config = config.get_text_config(decoder=True)
    kinds = set(getattr(config, "layer_types", None) or ())
    others = ", ".join(map(repr, sorted(kinds - {"full_attention"})))
    reason = ""
    if getattr(config, "alibi", False) or config.model_type in _ALIBI:
        reason = "its positions are ALiBi"
    elif "sliding_attention" in kinds or (not kinds and getattr(config, "sliding_window", None)):
        reason = "it attends through a sliding window"
    elif others:
        recurrent = " (recurrent)" if kinds & _RECURRENT else ""
        reason = f"it has layers of the kind {others}{recurrent}"
    if reason:
        raise ConfigError(f"{name} cannot train on prefix trees: {reason}. {_REMEDY}")


def _own_way(model: Any) -> str:
    """Return how a model attends if not through ``AttentionInterface``; empty where it does."""
    if not getattr(model, "_can_set_attn_implementation", lambda: False)():
        return "it does not attend through transformers' AttentionInterface"
    attends = model.config.get_text_config(decoder=True)._attn_implementation
    if attends not in ("sdpa", NAME):
        return f"model.attention = {attends!r}, and trees have an attention of their own; use 'sdpa'"
    return ""


@torch.no_grad()
def _try_out(model: Any) -> tuple[float, float]:
    """Return the largest difference between outputs on a small tree and on its rows, and the largest output."""
    top = model.config.get_text_config(decoder=True).vocab_size
    rows = [[at % top for at in ids] for ids in ((1, 2, 3, 4, 5, 6), (1, 2, 3, 7), (1, 2, 3, 4, 8))]
    (tree,) = plant(rows, budget=100)
    device = model.device
    ids, depths = (torch.from_numpy(a).unsqueeze(0).to(device) for a in (tree.token_ids, tree.depths))
    found = model(input_ids=ids, position_ids=depths, use_cache=False, segments=tree.segments)[0][0]
    difference = scale = 0.0
    for at, path in zip(tree.sequences, tree.paths, strict=True):
        alone = torch.tensor([rows[at]], device=device)
        want = model(input_ids=alone, position_ids=torch.arange(len(rows[at]), device=device)[None], use_cache=False)
        difference = max(difference, (found[torch.from_numpy(path).to(device)] - want[0][0]).abs().max().item())
        scale = max(scale, want[0].abs().max().item())
    return difference, scale


AttentionInterface.register(NAME, tree_attention)  # without a mask beside it, transformers makes none
