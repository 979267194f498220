"""Runs code that nobody has read, where it can do no harm: see `docs/guides/sandbox.md`."""
