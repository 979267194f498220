"""What goes over the wire to an OpenAI-compatible endpoint and back: bodies, choices, ``Retry-After``. Pure functions.

Connections, retries and counts are in ``openai.py``.
"""

import contextlib
import hashlib
import json
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from agentr1_train.endpoint_config import EndpointConfig
from agentr1_train.errors import EndpointError
from agentr1_train.sampler.base import Prompt, SamplingParams

PATHS = {"chat": "chat/completions", "completions": "completions"}


class TransientError(Exception):
    """One attempt that may go well next time; ``retry_after`` seconds are what the server asks for."""

    def __init__(self, reason: str, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.retry_after = reason, retry_after


def request_body(prompt: Prompt, params: SamplingParams, settings: EndpointConfig) -> dict[str, Any]:
    """Return the JSON of a request. ``seed`` is that of the prompt's key: a server that honours it repeats itself."""
    body: dict[str, Any] = {
        "model": settings.model,
        "max_tokens": prompt.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
    }
    if params.temperature > 0:
        digest = hashlib.blake2b(struct.pack(f"<{len(prompt.key)}q", *prompt.key), digest_size=4).digest()
        body["seed"] = int.from_bytes(digest, "little") & 0x7FFFFFFF
    if settings.api == "chat":
        body["messages"] = [dict(message) for message in prompt.messages]
        if prompt.tools:
            body["tools"] = [dict(schema) for schema in prompt.tools]
    else:
        body["prompt"] = list(prompt.ids)
    if settings.send_stop and params.stop:
        body["stop"] = list(params.stop)
    body |= settings.request
    return {name: value for name, value in body.items() if value != ""}


def read_choice(answer: Any, api: str, send_stop: bool = False) -> tuple[str, str]:
    """Return text and finish reason of the first choice.

    Calls that a server took out of the text go back into it, in Hermes form: environments read text.

    Raises:
        TransientError: it has another form.
        EndpointError: stop strings were sent and the endpoint does not say which one ended the response.
    """
    try:
        choice = answer["choices"][0]
        finish = choice.get("finish_reason") or "stop"
        if api == "completions":
            text = choice["text"]
        else:
            message = choice["message"]
            text = "".join([message.get("content") or "", *map(_call, message.get("tool_calls") or ())])
        if not isinstance(text, str):
            raise TypeError("the text is no string")
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        shown = json.dumps(answer, ensure_ascii=False)[:200]
        raise TransientError(f"the answer has no choice that can be read: {shown}") from error
    if send_stop and finish == "stop":
        if "stop_reason" not in choice:
            raise EndpointError(
                "endpoint.send_stop = true, but the endpoint does not say which stop string it met (stop_reason). "
                "Set it to false: responses are then cut here."
            )
        met = choice["stop_reason"]
        text += met if isinstance(met, str) else ""
    return text, finish


def retry_after(header: str, now: Callable[[], float]) -> float:
    """Return the seconds that a ``Retry-After`` header asks for, in either of its forms; 0 for none."""
    if not header:
        return 0.0
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(header)
    except ValueError:
        return 0.0
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.fromtimestamp(now(), UTC)).total_seconds())


def _call(call: Any) -> str:
    function = call["function"]
    arguments = function["arguments"]
    # What is no JSON goes on as it is: a malformed call is the model's, and the environment answers it.
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f'<tool_call>{{"name": {json.dumps(function["name"])}, "arguments": {written}}}</tool_call>'


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Cut behind the first stop string, which stays, as in every sampler."""
    ends = [text.index(word) + len(word) for word in stop if word in text]
    return (text[: min(ends)], True) if ends else (text, False)


def said(response: httpx.Response) -> str:
    """Return what the server said, on one line: its error's message, or the beginning of the body."""
    text = response.text
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        body = response.json()
        error = body.get("error", body)
        text = error if isinstance(error, str) else str(error.get("message", error))
    return " ".join(text.split())[:300] or "(nothing)"
