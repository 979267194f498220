"""What the critic says of rows, and what it learns from them: one value a step, or one at each trained token.

A step's value is read at its last prompt token, where the policy is about to write the first token: the value of a step
is that of its first token. Where there is no token (an empty response, the prompt after a truncated trajectory) the
critic that reads tokens is given one that is never attended to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from agentr1_train.batch import MicroBatch, Row, pack, split_rows, split_tokens
from agentr1_train.config import EngineConfig
from agentr1_train.engine.deepspeed import DeepSpeedEngine
from agentr1_train.losses import LossOutput, value_loss
from agentr1_train.presets import AlgorithmSettings

_STAND_IN = (0,)
"""Response of a row that has none: its id is predicted and never seen."""


@dataclass(frozen=True, slots=True)
class Values:
    """The critic's values of rows."""

    steps: list[float]
    """At the last prompt token of each row."""
    tokens: list[tuple[float, ...]]
    """At each trained token of each row; empty tuples from a critic that reads steps."""


def critic_values(
    critic: DeepSpeedEngine, rows: Sequence[Row], engine: EngineConfig, settings: AlgorithmSettings
) -> Values:
    """Return the critic's values of the rows. A collective call."""
    if not settings.by_token:
        packed = pack([prompt_only(row) for row in rows], engine.micro_batch_tokens, packing=engine.packing)
        return Values(split_rows(packed, critic.evaluate(packed), len(rows)), [()] * len(rows))
    asked = [replace(prompt_only(row), response_ids=row.response_ids or _STAND_IN) for row in rows]
    packed = pack(asked, engine.micro_batch_tokens, packing=engine.packing)
    spans = split_tokens(packed, critic.evaluate(packed), len(asked))
    tokens = [span if row.response_ids else () for row, span in zip(rows, spans, strict=True)]
    return Values([span[0] for span in spans], tokens)


def critic_rows(rows: Sequence[Row], settings: AlgorithmSettings) -> list[Row]:
    """Return the rows that the critic's loss reads: prompts alone, or whole where it is read at every token."""
    return [prompt_only(row, keep_response=settings.by_token) for row in rows]


def critic_loss(values: Tensor, batch: MicroBatch, settings: AlgorithmSettings) -> LossOutput:
    """Return the critic's loss on what its forward gave for a micro-batch."""
    if settings.by_token:
        return value_loss(values, batch.token_value, batch.token_return, batch.value_weight[batch.step], settings)
    return value_loss(values, batch.old_value, batch.returns, batch.value_weight, settings)


def prompt_only(row: Row, keep_response: bool = False) -> Row:
    """Return the row without what only the policy reads; the critic of steps reads the prompt, never the response."""
    if keep_response:
        return replace(row, sampler_logp=(), old_logp=(), ref_logp=None, token_advantages=())
    spans: dict[str, Any] = dict.fromkeys(("response_ids", "sampler_logp", "old_logp", "token_advantages"), ())
    return replace(row, ref_logp=None, token_values=(), token_returns=(), **spans)
