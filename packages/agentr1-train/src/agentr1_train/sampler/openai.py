"""Samples from any endpoint that speaks OpenAI's protocol: retries, a rate limit, counts of tokens and of money.

For evaluation only: an endpoint gives text and no token ids, so there is nothing to train on. Each request goes its own
way (``complete``), so a slow one holds nobody; one background thread owns the event loop and the connections. Requests
that the endpoint refuses for what they say (400, 413, 422) fail alone; whatever else lasts longer than the retries
(a wrong key, a dead server) stops everything. It renders no prompt and reads no server's metrics.
"""

import asyncio
import contextlib
import os
import random
import threading
import time
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import httpx
import torch

from agentr1_train.endpoint_config import EndpointConfig
from agentr1_train.errors import ConfigError, EndpointError, RequestRefusedError
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.sampler.openai_protocol import (
    PATHS,
    TransientError,
    cut_at_stop,
    read_choice,
    request_body,
    retry_after,
    said,
)

BACKOFF_S = 0.5
"""Before the first retry, doubled for each further one, up to ``LONGEST_BACKOFF_S``; a quarter of it is random."""
LONGEST_BACKOFF_S = 30.0
LONGEST_RETRY_AFTER_S = 600.0
"""An endpoint that asks for a longer pause is given up."""

_REFUSED = frozenset({400, 413, 422})
_TRANSIENT = frozenset({408, 409, 425, 429})

_T = TypeVar("_T")


@dataclass(slots=True)
class Usage:
    """What was asked for and what it cost."""

    requests: int = 0
    """Every attempt."""
    retries: int = 0
    input_tokens: int = 0
    """As the endpoint counted them."""
    output_tokens: int = 0
    uncounted: int = 0
    """Answers that told no usage: their tokens and cost are missing here."""
    cost: float = 0.0
    """In the currency of the prices."""


class OpenAISampler:
    """Asks an endpoint. It has no weights of its own: ``load_weights`` is refused."""

    def __init__(self, settings: EndpointConfig, tokenizer: Any) -> None:
        """Open nothing yet: the first request connects.

        Args:
            settings: the section ``endpoint`` of the recipe.
            tokenizer: gives a response the ids that records hold; what the environment reads is the endpoint's text.

        Raises:
            ConfigError: no address or model, a number out of range, or the key's variable is not set.
        """
        _check(settings)
        self.policy_version = 0
        self._settings = settings
        self._tokenizer = tokenizer
        self._url = f"{settings.base_url.rstrip('/')}/{PATHS[settings.api]}"
        self._key = _read_key(settings.api_key_env)
        self._usage = Usage()
        self._next_slot = 0.0
        self._loop = asyncio.new_event_loop()
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        # The number of episodes in flight is the limit of connections, not a second one here.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._client = httpx.AsyncClient(headers=headers, timeout=settings.timeout_s, limits=limits)
        self._thread = threading.Thread(target=self._loop.run_forever, name="agentr1-endpoint", daemon=True)
        self._thread.start()

    @property
    def usage(self) -> dict[str, float]:
        """Counts so far; see ``Usage``."""
        return asdict(self._usage)

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Completion]:
        """Return one completion for each prompt, in order; the requests go out side by side."""

        async def all_of_them() -> list[Completion]:
            return list(await asyncio.gather(*(self._complete(prompt, params) for prompt in prompts)))

        return asyncio.run_coroutine_threadsafe(all_of_them(), self._loop).result()

    async def complete(self, prompt: Prompt, params: SamplingParams) -> Completion:
        """Return the completion of one prompt; may be awaited in any event loop.

        Raises:
            RequestRefusedError: the endpoint refuses this request for what it says.
            EndpointError: the endpoint cannot be used, or not within the retries.
        """
        return await asyncio.wrap_future(self._submit(self._complete(prompt, params)))

    def load_weights(self, version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Refuse: the endpoint's model is not ours."""
        raise ConfigError("sampler.name = 'openai' only evaluates: an endpoint's weights cannot be replaced.")

    def close(self) -> None:
        """Drop what is in flight and close the connections."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(TimeoutError):
            self._submit(self._shut()).result(timeout=5.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _submit(self, work: Coroutine[Any, Any, _T]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _shut(self) -> None:
        mine = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)
        await self._client.aclose()

    async def _complete(self, prompt: Prompt, params: SamplingParams) -> Completion:
        body = request_body(prompt, params, self._settings)
        attempt = 0
        while True:
            try:
                answer = await self._ask(body)
                text, finish = read_choice(answer, self._settings.api, self._settings.send_stop)
            except TransientError as failure:
                if attempt == self._settings.retries or failure.retry_after > LONGEST_RETRY_AFTER_S:
                    raise self._given_up(attempt + 1, failure) from failure
                self._usage.retries += 1
                await asyncio.sleep(max(failure.retry_after, _backoff(attempt)))
                attempt += 1
                continue
            self._count(answer)
            text, cut = cut_at_stop(text, params.stop)
            ids = tuple(self._tokenizer.encode(text, add_special_tokens=False))
            return Completion(ids, (0.0,) * len(ids), "length" if finish == "length" and not cut else "stop", text)

    def _given_up(self, attempts: int, failure: TransientError) -> EndpointError:
        wait = failure.retry_after
        asked = f", which asks to wait {wait:.0f} s" if wait > LONGEST_RETRY_AFTER_S else ""
        return EndpointError(
            f"{self._url} gave no answer in {attempts} attempts{asked}: {self._hidden(failure.reason)}. "
            "See that it runs and serves endpoint.model, or raise endpoint.retries; then evaluate again."
        )

    async def _ask(self, body: dict[str, Any]) -> Any:
        """Send one request and return its JSON."""
        await self._take_slot()
        self._usage.requests += 1
        try:
            response = await self._client.post(self._url, json=body)
        except httpx.TimeoutException:
            raise TransientError(f"no answer within {self._settings.timeout_s:g} s") from None
        except httpx.TransportError as error:
            raise TransientError(f"{type(error).__name__}: {error}") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise EndpointError(f"endpoint.base_url = {self._settings.base_url!r}: {error}") from error
        status = response.status_code
        if status in _TRANSIENT or status >= 500:
            wait = retry_after(response.headers.get("retry-after", ""), time.time)
            raise TransientError(f"status {status}: {said(response)}", wait)
        if status in _REFUSED:
            raise RequestRefusedError(f"status {status}: {self._hidden(said(response))}")
        if status != 200:
            raise EndpointError(
                f"{self._url} answers with status {status}: {self._hidden(said(response))}. Check endpoint.base_url, "
                "endpoint.model and endpoint.api_key_env."
            )
        try:
            return response.json()
        except ValueError:
            raise TransientError(f"the answer is no JSON: {said(response)}") from None

    async def _take_slot(self) -> None:
        """Wait for this request's turn under the rate limit."""
        if not self._settings.requests_per_minute:
            return
        now = time.monotonic()
        slot = max(now, self._next_slot)
        self._next_slot = slot + 60.0 / self._settings.requests_per_minute
        await asyncio.sleep(slot - now)

    def _count(self, answer: Any) -> None:
        told = answer.get("usage") or {}
        read, written = told.get("prompt_tokens"), told.get("completion_tokens")
        if not isinstance(read, int) or not isinstance(written, int):
            self._usage.uncounted += 1
            return
        self._usage.input_tokens += read
        self._usage.output_tokens += written
        self._usage.cost += (read * self._settings.price_input + written * self._settings.price_output) / 1e6

    def _hidden(self, text: str) -> str:
        """Return what a server said without the key, which some repeat."""
        return text.replace(self._key, "***") if self._key else text


def _check(settings: EndpointConfig) -> None:
    if not settings.base_url.startswith(("http://", "https://")):
        raise ConfigError(
            f"endpoint.base_url = {settings.base_url!r}: give the address up to the version, http://HOST:PORT/v1."
        )
    if not settings.model:
        raise ConfigError("endpoint.model is empty: give the name under which the endpoint serves the model.")
    for name in ("retries", "requests_per_minute", "price_input", "price_output"):
        if getattr(settings, name) < 0:
            raise ConfigError(f"endpoint.{name} = {getattr(settings, name)}: legal is 0 or above.")
    if settings.timeout_s <= 0:
        raise ConfigError(f"endpoint.timeout_s = {settings.timeout_s}: legal is above 0.")


def _read_key(variable: str) -> str:
    if not variable:
        return ""
    key = os.environ.get(variable, "")
    if not key:
        raise ConfigError(f"endpoint.api_key_env = {variable!r}: that environment variable is not set. Export the key.")
    return key


def _backoff(attempt: int) -> float:
    return min(LONGEST_BACKOFF_S, BACKOFF_S * 2**attempt) * random.uniform(0.75, 1.0)
