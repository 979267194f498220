"""A batch of the hf sampler that goes on: responses end and leave, prompts are read between two tokens and join.

A row has its own prompt, limit and noise; who stands beside it changes rounding and nothing else. Which prompts join,
and when, is for others to decide.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentr1_train.errors import ConfigError, NonFiniteLogitsError
from agentr1_train.sampler.base import Completion, Outcome, Prompt, SamplingParams
from agentr1_train.sampler.draw import draw, uniform_noise
from agentr1_train.sampler.kv_cache import BufferCache, bytes_per_token
from agentr1_train.sampler.prefill import read_prompts
from agentr1_train.sampler.prefix_store import PrefixStore
from agentr1_train.sampler.stop_strings import StopStrings

_THIN = 4  # rows leave once one in this many has ended


@dataclass(frozen=True, slots=True)
class Limits:
    """What a batch may hold."""

    rows: int
    cache_bytes: int
    """Keys and values of all rows at their longest; a single prompt may exceed it."""


@dataclass(slots=True)
class _Row:
    """One response in the making. Its last token is drawn and not read."""

    ticket: int
    prompt: Prompt
    noise: np.ndarray
    """Shape: (max_tokens,); empty under greedy decoding."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False

    @property
    def read(self) -> int:
        """Tokens whose keys and values the cache holds."""
        return len(self.prompt.ids) + max(0, len(self.ids) - 1)

    def next_noise(self) -> float:
        return 0.0 if self.ended else float(self.noise[len(self.ids)])


class RunningBatch:
    """Rows that are sampled together. Every open row is one token ahead of what the model has read.

    Keys and values stand flush right: row i's tokens lie in the cache's positions from ``_pad[i]`` to the end.
    """

    def __init__(
        self, model: Any, params: SamplingParams, store: PrefixStore, stops: StopStrings | None, limits: Limits
    ) -> None:
        """Begin empty.

        Args:
            model: a transformers causal LM; its weights stay as they are while the batch runs.
            params: of all rows.
            store: keys and values from earlier turns; gets those of the rows that end.
            stops: finds ``params.stop``; ``None``: there are none.
            limits: rows and memory.
        """
        self._model, self._params, self._store, self._stops, self._limits = model, params, store, stops, limits
        self._config = model.config.get_text_config(decoder=True)
        self._stop_ids = frozenset(params.stop_ids)
        self._generation = store.generation
        self._cache = BufferCache(self._config.num_hidden_layers)
        self._rows: list[_Row] = []
        self._size = 0  # rows when prompts last joined or ended rows left
        self._tickets = 0
        self._outcomes: dict[int, Outcome] = {}
        self._tokens = torch.empty(0, dtype=torch.long, device=model.device)
        self._pad = torch.empty(0, dtype=torch.long, device=model.device)
        self._padded = False

    @property
    def thin(self) -> bool:
        """Whether so many rows have ended that it is worth a copy of the cache to let them go, and others in."""
        return len(self._open()) <= self._size - max(1, self._size // _THIN)

    def room(self, prompts: Sequence[Prompt]) -> int:
        """Return how many of the first prompts may join now. An empty batch takes at least one."""
        rows = self._open()
        length = max((row.read + 1 for row in rows), default=0)
        tokens = max((row.prompt.max_tokens - len(row.ids) for row in rows), default=0)
        a_token = bytes_per_token(self._config, self._model.dtype)
        for count, prompt in enumerate(prompts):
            length, tokens = max(length, len(prompt.ids)), max(tokens, prompt.max_tokens)
            together = len(rows) + count + 1
            if together > self._limits.rows or together * (length + tokens) * a_token > self._limits.cache_bytes:
                return count if rows or count else 1
        return len(prompts)

    @torch.inference_mode()
    def join(self, prompts: Sequence[Prompt]) -> list[int]:
        """Read prompts and draw their first tokens; return a ticket for each. What fails here leaves the others whole.

        A prompt that cannot be sampled from has its error as its outcome.

        Raises:
            RuntimeError: the weights have changed since the batch began.
        """
        self._check_weights()
        tickets = list(range(self._tickets, self._tickets + len(prompts)))
        self._tickets += len(prompts)
        joining: list[_Row] = []
        for ticket, prompt in zip(tickets, prompts, strict=True):
            if (known := self._known_outcome(prompt)) is not None:
                self._outcomes[ticket] = known
                continue
            count = 0 if self._params.temperature == 0 else prompt.max_tokens
            joining.append(_Row(ticket, prompt, uniform_noise(prompt.key, count)))
        if joining:
            self._admit(joining)
        return tickets

    @torch.inference_mode()
    def decode(self, steps: int) -> dict[int, Outcome]:
        """Draw tokens until a response ends, ``steps`` at most; return what has ended, by ticket.

        Raises:
            RuntimeError: the weights have changed since the batch began.
        """
        self._check_weights()
        for _ in range(steps):
            if self._outcomes or not self._open():
                break
            if self.thin:
                self._leave()
            rows = self._rows
            self._tokens, logprobs = self._draw(rows, self._read())
            self._append(range(len(rows)), self._tokens, logprobs)
        outcomes, self._outcomes = self._outcomes, {}
        return outcomes

    def drop(self, tickets: Collection[int]) -> None:
        """Give up responses that nobody waits for: they have no outcome."""
        for row in self._rows:
            row.ended = row.ended or row.ticket in tickets
        self._outcomes = {ticket: outcome for ticket, outcome in self._outcomes.items() if ticket not in tickets}

    def _open(self) -> list[_Row]:
        return [row for row in self._rows if not row.ended]

    def _known_outcome(self, prompt: Prompt) -> Outcome | None:
        """Return what comes of a prompt that needs no model."""
        limit = getattr(self._config, "max_position_embeddings", None)
        if limit and len(prompt.ids) + prompt.max_tokens > limit:
            return ConfigError(
                f"a prompt of {len(prompt.ids)} tokens and a response of up to {prompt.max_tokens} exceed the "
                f"model's {limit} positions. Lower rollout.max_prompt_tokens or rollout.max_response_tokens."
            )
        return None if prompt.max_tokens > 0 else Completion((), (), "length")

    def _check_weights(self) -> None:
        if self._store.generation != self._generation:
            raise RuntimeError("the sampler's weights changed while responses were being sampled: begin a new batch.")

    def _admit(self, joining: list[_Row]) -> None:
        """Read prompts apart, then lay them beside the open rows."""
        part = BufferCache(len(self._cache.buffers))
        logits = read_prompts(self._model, [row.prompt for row in joining], self._store, part)
        tokens, logprobs = self._draw(joining, logits)
        keep = self._keep()
        self._cache.admit(keep, self._unused(keep), part)
        self._tokens = torch.cat([self._tokens[keep], tokens])
        self._rows = [*self._open(), *joining]
        self._arrange()
        self._append(range(len(keep), len(self._rows)), tokens, logprobs)

    def _leave(self) -> None:
        """Drop ended rows, and the left padding that no open row needs."""
        keep = self._keep()
        self._cache.select(keep, self._unused(keep))
        self._tokens = self._tokens[keep]
        self._rows = self._open()
        self._arrange()

    def _keep(self) -> Tensor:
        """Return the places of the open rows. Shape: (b,)."""
        places = [i for i, row in enumerate(self._rows) if not row.ended]
        return torch.tensor(places, dtype=torch.long, device=self._model.device)

    def _unused(self, keep: Tensor) -> int:
        """Return how many leading positions are padding in all these rows."""
        return int(self._pad[keep].min()) if len(keep) else 0

    def _arrange(self) -> None:
        """Note what follows from the rows, all of them open."""
        self._size = len(self._rows)
        pads = [self._cache.get_seq_length() - row.read for row in self._rows]
        self._padded = any(pads)
        self._pad = torch.tensor(pads, dtype=torch.long, device=self._model.device)

    def _read(self) -> Tensor:
        """Read every row's last token and return the logits after it. Shape: (B, V)."""
        length = self._cache.get_seq_length()
        mask = None
        if self._padded:
            mask = (torch.arange(length + 1, device=self._pad.device) >= self._pad.unsqueeze(-1)).long()
        positions = length - self._pad
        if limit := getattr(self._config, "max_position_embeddings", None):
            positions = positions.clamp(max=limit - 1)  # an ended row that has not left yet may run past it
        output = self._model(
            input_ids=self._tokens.unsqueeze(-1),
            attention_mask=mask,
            position_ids=positions.unsqueeze(-1),
            past_key_values=self._cache,
            use_cache=True,
        )
        return output.logits[:, 0]

    def _draw(self, rows: Sequence[_Row], logits: Tensor) -> tuple[Tensor, Tensor]:
        noise = None
        if self._params.temperature != 0:
            noise = torch.tensor([row.next_noise() for row in rows], dtype=torch.float32, device=logits.device)
        return draw(logits, noise, self._params.temperature, self._params.top_p)

    def _append(self, places: range, tokens: Tensor, logprobs: Tensor) -> None:
        """Append a token to each open row at these places, and end those that it ends. Shapes: (len(places),)."""
        may_end = [False] * len(places) if self._stops is None else self._stops.may_end(tokens).tolist()
        drawn = zip(places, tokens.tolist(), logprobs.tolist(), may_end, strict=True)
        for place, token, logprob, look in drawn:
            row = self._rows[place]
            if row.ended:
                continue
            row.ids.append(token)
            row.logprobs.append(logprob)
            outcome = self._outcome(row, look)
            if outcome is not None:
                row.ended = True
                self._outcomes[row.ticket] = outcome
            if isinstance(outcome, Completion):
                ids = (*row.prompt.ids, *row.ids[:-1])
                self._store.put(row.prompt, ids, self._cache, place, self._cache.get_seq_length() - row.read)

    def _outcome(self, row: _Row, look: bool) -> Outcome | None:
        """Return what came of a row, if its last token ended it. ``look``: the token may complete a stop string."""
        if not math.isfinite(row.logprobs[-1]):
            return NonFiniteLogitsError(
                "the model's logits are NaN or infinite while sampling. Lower the learning rate, or take bf16 or fp32 "
                "instead of fp16 (sampler.dtype)."
            )
        stopped = row.ids[-1] in self._stop_ids or (look and self._stops is not None and self._stops.found(row.ids))
        if stopped or len(row.ids) == row.prompt.max_tokens:
            return Completion(tuple(row.ids), tuple(row.logprobs), "stop" if stopped else "length")
        return None
