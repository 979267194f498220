"""Samples from a transformers causal language model, on a CPU or a GPU, with its own decode loop.

Equal prompts are read once and an episode's next turn reads only what is new; rows that end leave the batch, and
prompts that wait join it; keys and values are written in place. It speculates nothing and compiles nothing, and serves
any model made of attention layers.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from agentr1_train.errors import ConfigError
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.sampler.grouped_attention import use_grouped_attention
from agentr1_train.sampler.kv_cache import check_supported
from agentr1_train.sampler.prefix_store import PrefixStore
from agentr1_train.sampler.running_batch import Limits, RunningBatch
from agentr1_train.sampler.stop_strings import StopStrings

_PREFIX_BYTES = 1 << 30  # keys and values kept from one turn of an episode to the next
_CACHE_BYTES = 4 << 30  # keys and values of one batch, at their longest
_STEPS = 1 << 30  # nobody has to be listened to between tokens


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

    def start(self, params: SamplingParams) -> RunningBatch:
        """Return an empty batch, which prompts may join while it runs. It ends for good when weights are loaded."""
        limits = Limits(self._max_batch, _CACHE_BYTES)
        return RunningBatch(self._model, params, self._store, self._stop_strings(params.stop), limits)

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Completion]:
        """Return one completion for each prompt, in order.

        Raises:
            ConfigError: a prompt and its longest response exceed the model's positions.
            NonFiniteLogitsError: the model gave NaN or infinity.
        """
        batch = self.start(params)
        done: dict[int, Completion] = {}
        places: dict[int, int] = {}
        # The longest first: should memory not suffice, it fails at once.
        waiting = sorted(range(len(prompts)), key=lambda i: len(prompts[i].ids), reverse=True)
        while waiting or places:
            if waiting and (batch.thin or not places):
                room = batch.room([prompts[i] for i in waiting])
                joining, waiting = waiting[:room], waiting[room:]
                places.update(zip(batch.join([prompts[i] for i in joining]), joining, strict=True))
            for ticket, outcome in batch.decode(_STEPS).items():
                if isinstance(outcome, Exception):
                    raise outcome
                done[places.pop(ticket)] = outcome
        return [done[i] for i in range(len(prompts))]

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
