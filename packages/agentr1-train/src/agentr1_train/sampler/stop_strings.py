"""Finds out whether a response has just completed a stop string, without decoding every token.

A table over the vocabulary says which tokens hold the last character of a stop string; only after one of those is a
row's tail decoded. Tokens are never taken back: a stop string, and what its last token adds, stays in the response.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_REPLACEMENT = "\ufffd"  # what an incomplete character decodes to


class StopStrings:
    """One set of stop strings for one tokenizer."""

    def __init__(self, tokenizer: Any, stop: tuple[str, ...], vocabulary: int, device: torch.device) -> None:
        """Build the table: one decoding of the whole vocabulary.

        Args:
            tokenizer: a transformers tokenizer.
            stop: strings that end a response, none empty.
            vocabulary: rows of the model's output layer; may exceed the tokenizer's.
            device: where the sampled ids lie.
        """
        self._tokenizer, self._stop = tokenizer, stop
        # A token may hold part of one character: so many tokens back at most does a stop string begin.
        self._tail = max(len(text.encode()) for text in stop) + 4
        known = min(vocabulary, len(tokenizer))
        pieces = tokenizer.batch_decode([[token] for token in range(known)], skip_special_tokens=False)
        last = {text[-1] for text in stop} | {_REPLACEMENT}
        self._table = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        self._table[:known] = torch.tensor([not last.isdisjoint(piece) for piece in pieces], device=device)

    def may_end(self, tokens: Tensor) -> Tensor:
        """Return which tokens could complete a stop string. Shape: (B,) -> (B,), bool."""
        return self._table[tokens]

    def found(self, response: Sequence[int]) -> bool:
        """Return whether the response holds a stop string near its end."""
        text = self._tokenizer.decode(response[-self._tail :], skip_special_tokens=False)
        return any(stop in text for stop in self._stop)
