"""Killable processes for tools that do not declare `cooperative`."""
