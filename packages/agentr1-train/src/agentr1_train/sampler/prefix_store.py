"""Keys and values of what was read and written before, so that the next turn of an episode reads only what is new.

One entry for each episode (a prompt's key without its step), dropped oldest first, all of them when the weights change.
An entry is used only as far as its ids equal the prompt's, so a wrong key costs time and nothing else.
"""

from collections import OrderedDict
from dataclasses import dataclass

from torch import Tensor

from agentr1_train.sampler.base import Prompt
from agentr1_train.sampler.kv_cache import BufferCache

_WORTHWHILE = 16  # tokens; a shorter common beginning is read again


@dataclass(frozen=True, slots=True)
class Prefix:
    """Token ids and, for each layer, their keys and values. Shape: (heads, length, head_dim)."""

    ids: tuple[int, ...]
    layers: tuple[tuple[Tensor, Tensor], ...]

    def cut(self, length: int) -> "Prefix":
        """Return the first ``length`` tokens, as views."""
        return Prefix(self.ids[:length], tuple((keys[:, :length], values[:, :length]) for keys, values in self.layers))

    @property
    def bytes(self) -> int:
        return sum(part.nbytes for layer in self.layers for part in layer)


class PrefixStore:
    """Holds at most ``max_bytes``."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.generation = 0
        """How often the weights have changed."""
        self._bytes = 0
        self._entries: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, prompt: Prompt) -> Prefix | None:
        """Return what is known of a prompt's beginning; at least its last token is left to be read."""
        entry = self._entries.get(prompt.key[:-1])
        if entry is None:
            return None
        length = _common_length(entry.ids, prompt.ids[:-1])
        if length < _WORTHWHILE:
            return None
        return entry if length == len(entry.ids) else entry.cut(length)

    def put(self, prompt: Prompt, ids: tuple[int, ...], cache: BufferCache, row: int, start: int) -> None:
        """Keep a copy of one row.

        Args:
            prompt: whose episode it belongs to.
            ids: tokens whose keys and values lie in the cache. Length n.
            cache: where they lie.
            row: row of the cache.
            start: position of the first of them.
        """
        self._drop(prompt.key[:-1])
        layers = []
        for buffer in cache.buffers:
            keys, values = buffer.content()
            layers.append(tuple(part[row, :, start : start + len(ids)].clone() for part in (keys, values)))
        entry = Prefix(ids, tuple(layers))
        if entry.bytes > self._max_bytes:
            return
        self._entries[prompt.key[:-1]] = entry
        self._bytes += entry.bytes
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def clear(self) -> None:
        """Forget everything: the weights changed."""
        self._entries.clear()
        self._bytes = 0
        self.generation += 1

    def _drop(self, key: tuple[int, ...]) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self._bytes -= entry.bytes


def _common_length(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Return how many leading ids are equal, by bisection over slices."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
