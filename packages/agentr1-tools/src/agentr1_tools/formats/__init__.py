"""Formats: how calls and results are written in a conversation."""
