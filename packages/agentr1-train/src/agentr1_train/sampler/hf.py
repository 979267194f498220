"""Samples from a transformers causal language model, on a CPU or a GPU, with its own decode loop.

Equal prompts are read once and an episode's next turn reads only what is new; rows that end leave the batch; keys and
values are written in place. It speculates nothing and compiles nothing, and serves any model made of attention layers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agentr1_train.errors import ConfigError, NonFiniteLogitsError
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.sampler.draw import draw, noise_matrix
from agentr1_train.sampler.grouped_attention import use_grouped_attention
from agentr1_train.sampler.kv_cache import BufferCache, bytes_per_token, check_supported
from agentr1_train.sampler.prefill import read_prompts
from agentr1_train.sampler.prefix_store import PrefixStore
from agentr1_train.sampler.stop_strings import StopStrings

_PREFIX_BYTES = 1 << 30  # keys and values kept from one turn of an episode to the next
_CACHE_BYTES = 4 << 30  # keys and values of one batch, at their longest
_LEAVE_FRACTION = 8  # finished rows leave once they are one in this many


class HFSampler:
    """Owns a model for sampling. ``load_weights`` is the only way in which its weights change."""

    def __init__(self, model: Any, tokenizer: Any, *, max_batch: int = 64, device: torch.device | str = "cpu") -> None:
        """Take over a model.

        Args:
            model: a transformers causal LM.
            tokenizer: its tokenizer, for stop strings.
            max_batch: rows sampled together.
            device: where it samples.

        Raises:
            ConfigError: ``max_batch`` is below 1, or the model has recurrent layers.
        """
        if max_batch < 1:
            raise ConfigError(f"sampler.max_batch = {max_batch}: at least 1 is needed.")
        self.policy_version = 0
        self._device = torch.device(device)
        self._model: Any = model.to(self._device).eval().requires_grad_(False)
        self._config = model.config.get_text_config(decoder=True)
        check_supported(self._config)
        use_grouped_attention(self._model)
        self._store = PrefixStore(_PREFIX_BYTES)
        self._tokenizer = tokenizer
        self._max_batch = max_batch
        self._stops: dict[tuple[str, ...], StopStrings] = {}

    @torch.inference_mode()
    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Completion]:
        """Return one completion for each prompt, in order.

        Raises:
            ConfigError: a prompt and its longest response exceed the model's positions.
            NonFiniteLogitsError: the model gave NaN or infinity.
        """
        completions: list[Completion] = [Completion((), (), "length")] * len(prompts)
        order = sorted((i for i in range(len(prompts)) if prompts[i].max_tokens > 0), key=lambda i: len(prompts[i].ids))
        self._check_positions(prompts)
        while order:
            rows = self._batch_size([prompts[i] for i in order])
            # The longest together: should memory not suffice, it fails at the first batch.
            chosen, order = order[-rows:], order[:-rows]
            given = [prompts[i] for i in chosen]
            batch = _Batch(self._model, self._config.num_hidden_layers, given, params, self._store)
            for i, completion in zip(chosen, batch.run(self._stop_strings(params.stop)), strict=True):
                completions[i] = completion
        return completions

    @torch.no_grad()
    def load_weights(self, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Copy the weights in place, one tensor at a time, and set ``policy_version``.

        Raises:
            ConfigError: a name or shape that this model does not have, or a parameter that did not come.
        """
        self._store.clear()
        mine = self._model.state_dict(keep_vars=True)
        missing = {name: tensor.data_ptr() for name, tensor in self._model.named_parameters()}
        for name, tensor in tensors:
            target = mine.get(name)
            if target is None or target.shape != tensor.shape:
                has = "no such tensor" if target is None else f"shape {tuple(target.shape)}"
                raise ConfigError(
                    f"weight sync: {name!r} comes with shape {tuple(tensor.shape)}, the sampler's model has {has}. "
                    "Trainer and sampler must be made from the same model.path."
                )
            target.copy_(tensor)
            missing = {key: place for key, place in missing.items() if key != name and place != target.data_ptr()}
        if missing:
            raise ConfigError(
                f"weight sync: {len(missing)} parameters did not come, such as {next(iter(missing))!r}. "
                "Trainer and sampler must be made from the same model.path."
            )
        self.policy_version = version

    def close(self) -> None:
        """Let the model go."""
        self._model = None

    def _stop_strings(self, stop: tuple[str, ...]) -> StopStrings | None:
        if not stop:
            return None
        if stop not in self._stops:
            self._stops[stop] = StopStrings(self._tokenizer, stop, self._config.vocab_size, self._device)
        return self._stops[stop]

    def _check_positions(self, prompts: Sequence[Prompt]) -> None:
        limit = getattr(self._config, "max_position_embeddings", None)
        for prompt in prompts:
            if limit and len(prompt.ids) + prompt.max_tokens > limit:
                raise ConfigError(
                    f"a prompt of {len(prompt.ids)} tokens and a response of up to {prompt.max_tokens} exceed the "
                    f"model's {limit} positions. Lower rollout.max_prompt_tokens or rollout.max_response_tokens."
                )

    def _batch_size(self, prompts: Sequence[Prompt]) -> int:
        longest = len(prompts[-1].ids) + max(prompt.max_tokens for prompt in prompts)
        fit = _CACHE_BYTES // (longest * bytes_per_token(self._config, self._model.dtype))
        return max(1, min(self._max_batch, fit))


@dataclass(slots=True)
class _Rows:
    """The rows still in the batch. Shapes: (b,); noise (b, T)."""

    place: Tensor
    """Where the row stands in the batch as it was given."""
    prompt_length: Tensor
    limit: Tensor
    noise: Tensor | None
    open: Tensor
    """Not finished yet."""

    def select(self, rows: Tensor) -> "_Rows":
        noise = None if self.noise is None else self.noise[rows]
        return _Rows(self.place[rows], self.prompt_length[rows], self.limit[rows], noise, self.open[rows])


class _Batch:
    """One batch, from prompts to completions."""

    def __init__(
        self, model: Any, layers: int, prompts: Sequence[Prompt], params: SamplingParams, store: PrefixStore
    ) -> None:
        self._model, self._prompts, self._params, self._store = model, prompts, params, store
        self._device = device = model.device
        self._cache = BufferCache(layers)
        limits = [prompt.max_tokens for prompt in prompts]
        lengths = [len(prompt.ids) for prompt in prompts]
        greedy = params.temperature == 0
        self._width = max(lengths)
        self._rows = _Rows(
            place=torch.arange(len(prompts), device=device),
            prompt_length=torch.tensor(lengths, device=device),
            limit=torch.tensor(limits, device=device),
            noise=None if greedy else noise_matrix([prompt.key for prompt in prompts], limits, device),
            open=torch.ones(len(prompts), dtype=torch.bool, device=device),
        )
        self._ids = torch.zeros(len(prompts), max(limits), dtype=torch.long, device=device)
        self._logprobs = torch.zeros(len(prompts), max(limits), device=device)
        self._lengths = torch.tensor(limits, device=device)
        self._stopped = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        self._stop_ids = torch.tensor(params.stop_ids, dtype=torch.long, device=device)

    def run(self, stop_strings: StopStrings | None) -> list[Completion]:
        logits = read_prompts(self._model, self._prompts, self._store, self._cache)
        for step in range(self._ids.shape[1]):
            rows = self._rows
            noise = None if rows.noise is None else rows.noise[:, step]
            tokens, logprobs = draw(logits, noise, self._params.temperature, self._params.top_p)
            self._ids[rows.place, step] = tokens
            self._logprobs[rows.place, step] = logprobs
            self._finish(tokens, step, stop_strings)
            left = int(rows.open.sum())
            if not left:
                break
            if left <= len(tokens) - max(1, len(tokens) // _LEAVE_FRACTION):
                tokens = tokens[rows.open]
                self._leave()
            logits = self._forward(tokens, step)
        self._keep(torch.arange(len(self._rows.place), device=self._device))
        return self._completions()

    def _forward(self, tokens: Tensor, step: int) -> Tensor:
        rows = self._rows
        pad = self._width - rows.prompt_length
        mask = None
        if bool(pad.any()):
            mask = (torch.arange(self._width + step + 1, device=self._device) >= pad.unsqueeze(-1)).long()
        output = self._model(
            input_ids=tokens.unsqueeze(-1),
            attention_mask=mask,
            position_ids=(rows.prompt_length + step).unsqueeze(-1),
            past_key_values=self._cache,
            use_cache=True,
        )
        return output.logits[:, 0]

    def _finish(self, tokens: Tensor, step: int, stop_strings: StopStrings | None) -> None:
        """Close the rows that end with this token."""
        rows = self._rows
        stopped = torch.isin(tokens, self._stop_ids)
        if stop_strings is not None:
            for i in (stop_strings.may_end(tokens) & rows.open & ~stopped).nonzero().squeeze(-1).tolist():
                stopped[i] = stop_strings.found(self._ids[rows.place[i], : step + 1])
        stopped &= rows.open
        ended = rows.place[stopped]
        self._lengths[ended] = step + 1
        self._stopped[ended] = True
        rows.open = rows.open & ~stopped & (rows.limit > step + 1)

    def _leave(self) -> None:
        """Drop finished rows, and the left padding that no remaining row needs."""
        keep = self._rows.open.nonzero().squeeze(-1)
        self._keep((~self._rows.open).nonzero().squeeze(-1))
        self._rows = self._rows.select(keep)
        width = int(self._rows.prompt_length.max())
        self._cache.select(keep, self._width - width)
        self._width = width

    def _keep(self, rows: Tensor) -> None:
        """Store what finished rows have read and written; their last token was never read."""
        places, lengths = self._rows.place[rows].tolist(), self._lengths[self._rows.place[rows]].tolist()
        for row, place, length in zip(rows.tolist(), places, lengths, strict=True):
            prompt = self._prompts[place]
            ids = (*prompt.ids, *self._ids[place, : length - 1].tolist())
            self._store.put(prompt, ids, self._cache, row, self._width - len(prompt.ids))

    def _completions(self) -> list[Completion]:
        lengths, stopped = self._lengths.tolist(), self._stopped.tolist()
        ids, logprobs = self._ids.tolist(), self._logprobs.tolist()
        if not bool(self._logprobs.isfinite().all()):
            raise NonFiniteLogitsError(
                "the model's logits are NaN or infinite while sampling. Lower the learning rate, or take bf16 or fp32 "
                "instead of fp16 (sampler.dtype)."
            )
        return [
            Completion(tuple(row[:n]), tuple(values[:n]), "stop" if done else "length")
            for row, values, n, done in zip(ids, logprobs, lengths, stopped, strict=True)
        ]
