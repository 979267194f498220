"""From logits to one token a row: temperature, top-p, noise that belongs to the row.

Inverse transform: the row's uniform number picks a token off the cumulated probabilities. The number comes from the
prompt's key and the position alone, so a row samples the same in any batch, up to rounding of its logits.
"""

import hashlib

import numpy as np
import torch
from torch import Tensor

_TOP = 256  # candidates looked at first for top-p; nearly always enough


def uniform_noise(key: tuple[int, ...], count: int) -> np.ndarray:
    """Return ``count`` numbers in [0, 1), float32. A longer request begins with the same numbers.

    The key is hashed into a counter-based generator's key; the top 24 bits of each raw word are used.
    """
    digest = hashlib.blake2b(repr(tuple(int(part) for part in key)).encode(), digest_size=16).digest()
    raw = np.random.Philox(key=int.from_bytes(digest, "little")).random_raw(count)
    return ((raw >> np.uint64(40)).astype(np.float64) * 2.0**-24).astype(np.float32)


def draw(logits: Tensor, noise: Tensor | None, temperature: float, top_p: float) -> tuple[Tensor, Tensor]:
    """Return a token for each row and its log-probability under the distribution it was drawn from.

    Args:
        logits: shape (B, V).
        noise: uniform numbers, shape (B,); ``None`` under greedy decoding.
        temperature: 0 is greedy, with log-probabilities at temperature 1.
        top_p: the smallest set of likeliest tokens whose probability reaches it is kept, and renormalised.

    Returns:
        Token ids, shape (B,), and log-probabilities in nats, float32, shape (B,).
    """
    logits = logits.float()
    if noise is None or temperature == 0:
        tokens = logits.argmax(-1)
        return tokens, _gather(logits, tokens) - logits.logsumexp(-1)
    scaled = logits / temperature
    total = scaled.logsumexp(-1)
    probs = (scaled - total.unsqueeze(-1)).exp()
    if top_p < 1.0:
        probs = probs.masked_fill(_below_nucleus(probs, top_p), 0.0)
    cumulated = probs.cumsum(-1)
    mass = cumulated[:, -1:]
    # Strictly below the whole mass, so that the pick has a probability above 0 whatever rounding does.
    target = torch.minimum(noise.unsqueeze(-1) * mass, torch.nextafter(mass, torch.zeros_like(mass)))
    tokens = torch.searchsorted(cumulated, target, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
    logprobs = _gather(scaled, tokens) - total
    return tokens, logprobs - mass.squeeze(-1).log() if top_p < 1.0 else logprobs


def _below_nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Return which tokens top-p leaves out. Shape: (B, V), bool."""
    width = min(_TOP, probs.shape[-1])
    while True:
        best, index = probs.topk(width, -1)
        if width == probs.shape[-1] or bool((best.sum(-1) >= top_p).all()):
            break
        width = min(width * 8, probs.shape[-1])
    kept = best.cumsum(-1) - best < top_p  # the mass before a token is still short of top_p
    kept[:, 0] = True
    return torch.ones_like(probs, dtype=torch.bool).scatter(-1, index, ~kept)


def _gather(values: Tensor, tokens: Tensor) -> Tensor:
    return values.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
