"""The section ``endpoint`` of a recipe: whom ``sampler.name = "openai"`` asks. It holds no secret."""

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class EndpointConfig:
    """An OpenAI-compatible endpoint, for evaluation (``sampler.name = "openai"``)."""

    base_url: str = ""
    """Up to and with the version, such as ``http://127.0.0.1:8000/v1``."""
    model: str = ""
    """The name under which the endpoint serves the model."""
    api: Literal["chat", "completions"] = "chat"
    """``chat``: messages, to which the endpoint applies its template. ``completions``: the token ids of
    ``model.path``'s template, as in training."""
    api_key_env: str = ""
    """Environment variable that holds the key; empty: none is sent. The key itself stands nowhere."""
    timeout_s: float = 120.0
    """Seconds one request may take; past it, it is tried again."""
    retries: int = 5
    """Times a request is tried again: after a lost connection, a time-out, 408, 429, 5xx, or an answer that cannot be
    read."""
    requests_per_minute: float = 0.0
    """Requests are spaced out to this rate, retries included; 0: no limit."""
    price_input: float = 0.0
    """Price of a million input tokens, in any currency."""
    price_output: float = 0.0
    """Price of a million output tokens."""
    send_stop: bool = False
    """Send the environment's stop strings, for an endpoint that says which one it met (vLLM: ``stop_reason``).
    Otherwise a response is cut here, behind its first stop string."""
    request: dict[str, Any] = field(default_factory=dict)
    """Laid over the body of each request, such as ``{reasoning_effort = "low"}``; ``""`` leaves a field out, as in
    ``{max_tokens = "", max_completion_tokens = 512}``."""
