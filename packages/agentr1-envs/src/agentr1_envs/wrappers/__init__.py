"""Gymnasium wrappers: what the model sees of an episode's past."""

from agentr1_envs.wrappers.context import (
    AppendContext,
    Context,
    Exchange,
    FirstAndLastContext,
    MarkovContext,
    SummaryContext,
    WindowContext,
)

__all__ = [
    "AppendContext",
    "Context",
    "Exchange",
    "FirstAndLastContext",
    "MarkovContext",
    "SummaryContext",
    "WindowContext",
]
