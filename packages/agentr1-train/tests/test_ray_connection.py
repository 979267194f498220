"""Connecting to Ray: what is refused, and how soon. Connections that stand are in ``test_ray_pool.py``."""

import socket
import sys
import time

import pytest
from agentr1_train.config import RayConfig
from agentr1_train.errors import ConfigError
from agentr1_train.ray_connection import connect


@pytest.fixture(autouse=True)
def _no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize("address", ["", "somewhere", "ray://host:10001", "host:port"])
def test_an_address_has_host_and_port(address: str) -> None:
    with pytest.raises(ConfigError, match="write HOST:PORT of the cluster"):
        connect(RayConfig(actors=1, address=address))


def test_a_dead_address_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(ConfigError, match=rf"ray\.address = '{address}': nobody answers there"):
            connect(RayConfig(actors=1, address=address))
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ConfigError, match="nobody answers there"):
            connect(RayConfig(actors=1))
        assert time.monotonic() - started < 30


def test_ray_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'agentr1-train\[ray\]', or set ray.actors = 0"):
        connect(RayConfig(actors=1, address="127.0.0.1:6379"))
