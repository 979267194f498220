"""This process's connection with a Ray cluster: made with the first pool that needs it, ended with the last.

The only module that imports ray, and only when it is asked to connect. It starts and stops no node: that is
``ray start`` and ``ray stop``.
"""

import contextlib
import logging
import os
import socket
import warnings
from collections.abc import Iterator
from types import ModuleType

from agentr1_train.config import RayConfig
from agentr1_train.errors import ConfigError

_CONNECT_S = 5.0

_users = 0
"""Pools that use this process's connection; one that somebody else made is left alone."""
_ours = False


def connect(settings: RayConfig) -> ModuleType:
    """Return the module ``ray``, connected.

    Raises:
        ConfigError: no address, nobody there, not installed, or Ray refuses (another version of Ray or Python).
    """
    global _users, _ours
    address = settings.address or os.environ.get("RAY_ADDRESS", "")
    _check_address(address)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            f"ray.actors = {settings.actors}, but Ray cannot be imported ({error}). "
            "Install it, pip install 'agentr1-train[ray]', or set ray.actors = 0."
        ) from error
    if not ray.is_initialized():
        _check_answers(address)  # Ray itself would try again and again
        try:
            with _quiet():
                ray.init(address, log_to_driver=False, logging_level=logging.WARNING)
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ConfigError(f"ray.address = {address!r}: Ray could not join that cluster: {reason}") from error
        _ours = True
    _users += 1
    return ray


def disconnect(ray: ModuleType) -> None:
    """Give up one use of the connection."""
    global _users, _ours
    _users -= 1
    if _users == 0 and _ours:
        _ours = False
        with _quiet():
            ray.shutdown()


def _check_address(address: str) -> None:
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        return
    raise ConfigError(
        f"ray.address = {address!r}: write HOST:PORT of the cluster, as `ray start --head` prints it, or set "
        "RAY_ADDRESS. A cluster of this machine alone: ray start --head --port 6379, then --ray.address 127.0.0.1:6379."
    )


def _check_answers(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"ray.address = {address!r}: nobody answers there ({error}). Start the cluster (ray start --head --port "
            f"{port}), or set ray.actors = 0."
        ) from error


def check_room(ray: ModuleType, settings: RayConfig) -> None:
    """Refuse more actors than the cluster could ever hold.

    Raises:
        ConfigError: it has fewer CPUs, busy ones included.
    """
    wanted, there = settings.actors * settings.cpus_per_actor, ray.cluster_resources().get("CPU", 0.0)
    if wanted > there:
        raise ConfigError(
            f"ray.actors = {settings.actors} of {settings.cpus_per_actor:g} CPUs each: the cluster has {there:g} CPUs "
            "in all. Add nodes (ray start --address), or lower ray.actors or ray.cpus_per_actor."
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Ray's own warnings while it connects (about GPUs that these actors never use) are not the user's to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
