"""What a sampler is: token ids in, token ids and log-probabilities out.

A sampler knows nothing of episodes. Noise is keyed by ``Prompt.key`` and never by batch position, rank or worker, so a
prompt samples the same alone and in a batch, up to rounding of the logits.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch

from agentr1_train.trajectory import FinishReason


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request."""

    ids: tuple[int, ...]
    key: tuple[int, ...]
    """Seeds the noise: (run seed, stream, episode, step) or any tuple of ints."""
    max_tokens: int
    """Upper bound of this response."""
    messages: tuple[Mapping[str, Any], ...] = field(default=(), compare=False, repr=False)
    """What ``ids`` render: for a sampler that sends messages. Ids alone are what is sampled from everywhere else."""
    tools: tuple[Mapping[str, Any], ...] = field(default=(), compare=False, repr=False)
    """Schemas that the template was given."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What holds for a whole rollout."""

    temperature: float = 1.0
    """0 is greedy; log-probabilities are then those at temperature 1."""
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    """Strings that end a response, kept in it."""
    stop_ids: tuple[int, ...] = ()
    """Token ids that end a response, kept in it; the tokenizer's end tokens usually."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One response. ``ids`` and ``logprobs`` have the same length L >= 0."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    text: str | None = None
    """The response where it is text that came, and no ids: ``ids`` are then what a tokenizer makes of it, untrained."""


Outcome = Completion | Exception
"""What comes of a prompt."""


class Sampler(Protocol):
    """Samples responses; holds its own copy of the weights."""

    policy_version: int

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Completion]:
        """Return one completion for each prompt, in order."""
        ...

    def load_weights(self, version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Replace the weights, one tensor at a time, and set ``policy_version``."""
        ...

    def close(self) -> None: ...


class JoinableBatch(Protocol):
    """Responses that are being sampled together, and that others may join between two tokens."""

    def room(self, prompts: Sequence[Prompt]) -> int:
        """Return how many of the first prompts may join now. An empty batch takes at least one."""
        ...

    def join(self, prompts: Sequence[Prompt]) -> list[int]:
        """Take prompts in, and return a ticket for each."""
        ...

    def decode(self, steps: int) -> dict[int, Outcome]:
        """Sample until something ends, ``steps`` tokens at most; return what has ended, by ticket."""
        ...

    def drop(self, tickets: Collection[int]) -> None:
        """Give up responses that nobody waits for."""
        ...


@runtime_checkable
class ContinuousSampler(Protocol):
    """A sampler whose batches may be joined while they run."""

    def start(self, params: SamplingParams) -> JoinableBatch:
        """Return an empty batch. Weights must not be loaded before it is done with."""
        ...


@runtime_checkable
class SoloSampler(Protocol):
    """A sampler whose requests gain nothing by meeting in batches: each is sent at once, and holds nobody."""

    async def complete(self, prompt: Prompt, params: SamplingParams) -> Completion:
        """Return the completion of one prompt."""
        ...


@runtime_checkable
class MeteredSampler(Protocol):
    """A sampler that counts what it asked for and what it cost."""

    @property
    def usage(self) -> dict[str, float]: ...


@runtime_checkable
class Sleeper(Protocol):
    """A sampler that shares a device with the trainer and can give memory back between two rollouts."""

    def sleep(self) -> None:
        """Give it back; the next ``load_weights`` or ``sample`` takes it again."""
        ...
