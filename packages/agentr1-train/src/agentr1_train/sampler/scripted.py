"""A sampler whose responses a function writes: for tests of everything around the model.

It tokenises the text and gives every token the same log-probability. It has no weights: ``load_weights`` counts.
"""

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch

from agentr1_train.errors import ConfigError
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams

Script = Callable[[str, tuple[int, ...]], str]
"""``script(prompt_text, key) -> response``; the prompt's text holds its special tokens."""


class ScriptedSampler:
    """Answers every prompt with ``script(prompt_text, key)`` and the end token."""

    def __init__(self, tokenizer: Any, script: Script, *, logprob: float = -0.5, end_id: int | None = None) -> None:
        """Wrap a function.

        Args:
            tokenizer: a transformers tokenizer.
            script: writes the responses.
            logprob: log-probability of each token, nats.
            end_id: appended to each response that is not cut; ``None``: the tokenizer's end token.
        """
        self.policy_version = 0
        self._tokenizer = tokenizer
        self._script = script
        self._logprob = logprob
        self._end_id = tokenizer.eos_token_id if end_id is None else end_id

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Completion]:
        """Return one completion for each prompt; a stop string or ``max_tokens`` cuts it, as in a real sampler."""
        return [self._complete(prompt, params) for prompt in prompts]

    def load_weights(self, version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Consume the tensors, as a real sampler would, and set ``policy_version``."""
        for _ in tensors:
            continue
        self.policy_version = version

    def close(self) -> None:
        """Nothing is held."""

    def _complete(self, prompt: Prompt, params: SamplingParams) -> Completion:
        text = self._script(self._tokenizer.decode(list(prompt.ids), skip_special_tokens=False), prompt.key)
        ends = [text.index(stop) + len(stop) for stop in params.stop if stop in text]
        stopped = bool(ends)
        ids = self._tokenizer.encode(text[: min(ends)] if stopped else text, add_special_tokens=False)
        if not stopped and self._end_id is not None:
            ids.append(self._end_id)
        cut = len(ids) > prompt.max_tokens
        ids = ids[: prompt.max_tokens]
        return Completion(tuple(ids), (self._logprob,) * len(ids), "length" if cut else "stop")


def load_script(name: str) -> Script:
    """Import ``module:function``.

    Raises:
        ConfigError: the name has another form, or there is nothing callable of that name.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigError(f"sampler.script = {name!r}: write module:function.")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"sampler.script = {name!r} cannot be imported: {error}.") from error
    if not callable(found):
        raise ConfigError(f"sampler.script = {name!r} is a {type(found).__name__}, not a function.")
    return cast(Script, found)
