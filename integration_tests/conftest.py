"""What every integration test relies on."""

import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_interrupts() -> None:
    """A shell that starts the tests in the background makes them, and what they start, deaf to SIGINT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
