"""Reads prompts: runs the model over them once and leaves their keys and values in a cache.

Equal prompts are read once for all their rows, and what the prefix store knows is not read again.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agentr1_train.sampler.base import Prompt
from agentr1_train.sampler.kv_cache import BufferCache
from agentr1_train.sampler.prefix_store import Prefix, PrefixStore

_FORWARD_TOKENS = 8192  # padded tokens of one forward: bounds its activations


@dataclass(frozen=True, slots=True)
class _Job:
    """One distinct prompt."""

    ids: tuple[int, ...]
    rows: tuple[int, ...]
    prefix: Prefix | None

    @property
    def known(self) -> int:
        return 0 if self.prefix is None else len(self.prefix.ids)

    @property
    def unread(self) -> int:
        return len(self.ids) - self.known


def read_prompts(model: Any, prompts: Sequence[Prompt], store: PrefixStore, cache: BufferCache) -> Tensor:
    """Fill an empty cache with the prompts, flush right, and return the logits of the first tokens. Shape: (B, V)."""
    rows_of: dict[tuple[int, ...], list[int]] = {}
    for row, prompt in enumerate(prompts):
        rows_of.setdefault(prompt.ids, []).append(row)
    jobs = [_Job(ids, tuple(rows), store.find(prompts[rows[0]])) for ids, rows in rows_of.items()]
    width = max(len(job.ids) for job in jobs)
    logits: list[Tensor] = [torch.empty(0)] * len(prompts)
    for chunk in _chunks(sorted(jobs, key=lambda job: (job.known > 0, job.unread))):
        part = BufferCache(len(cache.buffers))
        read = _read(model, chunk, part)
        left = max(job.known for job in chunk)
        for i, job in enumerate(chunk):
            span = slice(left - job.known, left + job.unread)
            cache.place(job.rows, part, i, span, size=(len(prompts), width))
            for row in job.rows:
                logits[row] = read[i]
    return torch.stack(logits)


def _read(model: Any, jobs: Sequence[_Job], cache: BufferCache) -> Tensor:
    """Run the unread ends of prompts and return the logits after each. Shape: (b, V).

    What is known stands flush right before position ``left``, what is unread flush left from there, so that every
    row's tokens are contiguous and no padding lies before a token that sees it.
    """
    device = model.device
    left, width = max(job.known for job in jobs), max(job.unread for job in jobs)
    if left:
        cache.preload([job.prefix.layers if job.prefix else None for job in jobs], left)
    known = torch.tensor([job.known for job in jobs], device=device).unsqueeze(-1)
    ids = torch.tensor([(*job.ids[job.known :], *(0,) * (width - job.unread)) for job in jobs], device=device)
    positions = known + torch.arange(width, device=device)
    mask = None
    if any(job.known != left for job in jobs):
        mask = (torch.arange(left + width, device=device) >= left - known).long()
    last = torch.tensor([job.unread - 1 for job in jobs], device=device)
    limit = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if limit:
        positions = positions.clamp(max=limit - 1)  # padding may run past the end of a table of positions
    with _logits_only_at(model, last):
        output = model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
    return output.logits[:, 0]


@contextmanager
def _logits_only_at(model: Any, index: Tensor) -> Iterator[None]:
    """Let the output layer see one position a row: the vocabulary is wide and the prompt long. Shape: (b,)."""

    def select(_: torch.nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor]:
        hidden = args[0]
        return (hidden[torch.arange(len(hidden), device=hidden.device), index].unsqueeze(1),)

    handle = model.get_output_embeddings().register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()


def _chunks(jobs: Sequence[_Job]) -> Iterable[Sequence[_Job]]:
    """Cut jobs in ascending order into runs of bounded padded size, with and without a prefix apart."""
    begin = 0
    for end in range(1, len(jobs) + 1):
        full = end < len(jobs) and (
            jobs[end].unread * (end + 1 - begin) > _FORWARD_TOKENS or (jobs[end].known > 0) != (jobs[begin].known > 0)
        )
        if full or end == len(jobs):
            yield jobs[begin:end]
            begin = end
