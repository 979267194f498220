"""Keys and values of a batch that grows by one token a step, loses rows as they finish and gains others.

transformers' own dynamic cache copies everything at each token; this one writes into a buffer. It serves models whose
layers attend (sliding windows too: the mask does that); recurrent layers have no place in it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from agentr1_train.errors import ConfigError

Layers = Sequence[tuple[Tensor, Tensor]]
"""Keys and values of one sequence, layer by layer."""

_GROWTH = 64  # positions added at least when a buffer is full


class BufferLayer(DynamicLayer):
    """One layer's keys and values in buffers with room to spare. Shape: (B, heads, capacity, head_dim)."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0
        """Positions in use."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append n positions, return views of all. Shapes: (B, heads, n, head_dim) -> (B, heads, length, head_dim)."""
        end = self.length + key_states.shape[2]
        if self.keys is None or self.values is None:
            self.keys, self.values = key_states, value_states
            self.is_initialized = True
        else:
            if end > self.keys.shape[2]:
                capacity = max(end, self.length + max(_GROWTH, self.length // 4))
                self.keys, self.values = (_grown(part, self.length, capacity) for part in (self.keys, self.values))
            self.keys[:, :, self.length : end] = key_states
            self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.content()

    def content(self) -> tuple[Tensor, Tensor]:
        """Return keys and values in use, as views. Shape: (B, heads, length, head_dim)."""
        assert self.keys is not None
        assert self.values is not None
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def get_seq_length(self) -> int:
        """Return the number of positions in use."""
        return self.length

    def select(self, rows: Tensor, start: int) -> None:
        """Keep these rows, and of the positions those from ``start``. Shape of ``rows``: (b,)."""
        if self.keys is not None and self.values is not None:
            self.keys = self.keys[:, :, start:].index_select(0, rows)
            self.values = self.values[:, :, start:].index_select(0, rows)
            self.length -= start

    def admit(self, rows: Tensor, start: int, joining: "BufferLayer") -> None:
        """Do what ``select`` does, and lay the rows of another layer behind, all flush right; it is used up."""
        if not len(rows) or self.keys is None or self.values is None:
            self.keys, self.values, self.length = joining.keys, joining.values, joining.length
            self.is_initialized = True
            return
        length = max(self.length - start, joining.length)
        mine, theirs = self.content(), joining.content()
        self.keys, self.values = (
            _laid(one[:, :, start:].index_select(0, rows), other, length)
            for one, other in zip(mine, theirs, strict=True)
        )
        self.length = length

    def place(self, rows: Sequence[int], keys: Tensor, values: Tensor, size: tuple[int, int]) -> None:
        """Put one sequence that was computed apart into rows, at the right end of the used positions.

        Args:
            rows: where it goes.
            keys: shape (heads, n, head_dim), ``values`` alike.
            size: rows and positions of the whole buffer, made at the first call.
        """
        count, length = size
        if self.keys is None or self.values is None:
            self.reserve(keys, values, count, length + _GROWTH)
            self.length = length
        assert self.keys is not None
        assert self.values is not None
        start = length - keys.shape[1]
        for row in rows:
            self.keys[row, :, start:length] = keys
            self.values[row, :, start:length] = values

    def reserve(self, keys: Tensor, values: Tensor, count: int, capacity: int) -> None:
        """Make empty buffers of the kind of ``keys`` and ``values``. Shape: (heads, n, head_dim)."""
        self.keys = keys.new_zeros(count, keys.shape[0], capacity, keys.shape[2])
        self.values = values.new_zeros(count, values.shape[0], capacity, values.shape[2])
        self.is_initialized = True


class BufferCache(Cache):
    """The layers of one batch, handed to a model as ``past_key_values``."""

    def __init__(self, layers: int) -> None:
        self.buffers = [BufferLayer() for _ in range(layers)]
        super().__init__(layers=list(self.buffers))

    def select(self, rows: Tensor, start: int) -> None:
        """Keep these rows in every layer, without the first ``start`` positions."""
        for layer in self.buffers:
            layer.select(rows, start)

    def admit(self, rows: Tensor, start: int, joining: "BufferCache") -> None:
        """Keep these rows without the first ``start`` positions, and lay the rows of another cache behind them."""
        for mine, other in zip(self.buffers, joining.buffers, strict=True):
            mine.admit(rows, start, other)

    def place(
        self, rows: Sequence[int], part: "BufferCache", source: int, span: slice, *, size: tuple[int, int]
    ) -> None:
        """Copy one sequence of another cache into rows of this one, flush right.

        Args:
            rows: where it goes.
            part: the other cache.
            source: its row there.
            span: its positions there.
            size: rows and positions of this cache.
        """
        for mine, other in zip(self.buffers, part.buffers, strict=True):
            keys, values = other.content()
            mine.place(rows, keys[source, :, span], values[source, :, span], size)

    def preload(self, rows: Sequence[Layers | None], length: int) -> None:
        """Fill an empty cache with sequences computed before, flush right.

        Args:
            rows: for each row its layers' keys and values, shape (heads, n, head_dim); ``None``: nothing known.
            length: positions of this cache.
        """
        first = next(row for row in rows if row is not None)
        for number, buffer in enumerate(self.buffers):
            buffer.reserve(*first[number], len(rows), length + _GROWTH)
            for i, row in enumerate(rows):
                if row is not None:
                    buffer.place((i,), *row[number], (len(rows), length))
            buffer.length = length


def check_supported(config: Any) -> None:
    """Refuse a model with layers that are not attention.

    Raises:
        ConfigError: the model has recurrent layers.
    """
    kinds = set(getattr(config, "layer_types", None) or ())
    if odd := sorted(kind for kind in kinds if "attention" not in kind or "linear" in kind):
        raise ConfigError(
            f"the model has layers of the kind {', '.join(odd)}; the hf sampler takes attention layers only."
        )


def bytes_per_token(config: Any, dtype: torch.dtype) -> int:
    """Return the bytes that one position of one row takes in all layers."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * width * dtype.itemsize


def _grown(part: Tensor, length: int, capacity: int) -> Tensor:
    grown = part.new_zeros(part.shape[0], part.shape[1], capacity, part.shape[3])
    grown[:, :, :length] = part[:, :, :length]
    return grown


def _laid(one: Tensor, other: Tensor, length: int) -> Tensor:
    """Return the rows of both, flush right before position ``length``, with room to spare."""
    laid = one.new_zeros(len(one) + len(other), one.shape[1], length + _GROWTH, one.shape[3])
    laid[: len(one), :, length - one.shape[2] : length] = one
    laid[len(one) :, :, length - other.shape[2] : length] = other
    return laid
