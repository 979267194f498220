"""Compiles DeepSpeed's CPU communication kernel once, says so, and survives a compile that was killed.

On a CPU, DeepSpeed compiles ``deepspeed_shm_comm`` on its first launch: half a minute on an idle machine, minutes on a
busy one, in silence. A compile that is killed leaves torch's lock file behind, and every later launch waits for it
forever. Here the kernel has a folder of its own for each installation of torch and DeepSpeed; builders take turns
under a lock that the operating system drops with its owner; and a torch lock that nobody holds open is removed.

    python -m agentr1_train.engine.build

Imports DeepSpeed only when there is something to compile or to load.
"""

import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from agentr1_train.errors import DeviceError

KERNEL = "deepspeed_shm_comm"
SHARED_MEMORY = Path("/dev/shm")  # where shm_open puts what it makes, on Linux
EXTENSIONS_VARIABLE = "TORCH_EXTENSIONS_DIR"


def cache_dir() -> Path:
    """Return ``$AGENTR1_CACHE``, or ``~/.cache/agentr1``."""
    return Path(os.environ.get("AGENTR1_CACHE") or Path.home() / ".cache" / "agentr1").expanduser()


def use_extensions_dir() -> Path:
    """Point torch at our folder of compiled extensions unless the user chose one; call before DeepSpeed is imported.

    Each installation has its own: torch compiles anew whenever its headers lie elsewhere, so two would take turns.
    """
    versions = f"py{sys.version_info.major}{sys.version_info.minor}"
    versions += "".join(f"-{name}{metadata.version(name)}" for name in ("torch", "deepspeed"))
    place = str(metadata.distribution("torch").locate_file(""))
    versions += f"-{hashlib.blake2b(place.encode(), digest_size=4).hexdigest()}"
    return Path(os.environ.setdefault(EXTENSIONS_VARIABLE, str(cache_dir() / "torch_extensions" / versions)))


def is_built(folder: Path) -> bool:
    """True when a build of the kernel in this extensions folder ran to its end."""
    return _mark(folder).is_file() and any((folder / KERNEL).glob("*.so"))


def ensure_kernel() -> None:
    """Build the kernel when it is missing and load it into this process; ranks and runs take turns.

    Raises:
        DeviceError: the compiler failed; the message ends with its output.
    """
    folder = use_extensions_dir()
    with _turn(folder):
        remove_stale_lock(folder)
        started = time.monotonic()
        fresh = not is_built(folder)
        if fresh:
            _say(f"compiling DeepSpeed's CPU communication kernel, once: half a minute to a few minutes, in {folder}")
        _load()
        _mark(folder).touch()
        if fresh:
            _say(f"kernel compiled in {time.monotonic() - started:.0f} s")


def unlink_buffer(rank: int) -> None:
    """Drop the name of this rank's all-reduce buffer in shared memory: it then lasts as long as the ranks that map it.

    DeepSpeed never removes it. Each rank of each run, also of one that was killed, would leave 69 MB of the host's
    memory taken until the next boot. Call when every rank of the host has mapped the buffers.
    """
    address, port = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    name = f"deepspeed_allreduce_buffer_{os.getuid()}_{address}_{port}_{rank}"
    (SHARED_MEMORY / name).unlink(missing_ok=True)


def remove_stale_lock(folder: Path) -> bool:
    """Remove torch's lock on the kernel if no live process holds it open; return whether it was removed.

    Call under our own lock: a compile of ours cannot then be running, on this host or, with a shared home, elsewhere.
    """
    lock = folder / KERNEL / "lock"
    if not lock.exists():
        return False
    owner = _holder(lock)
    if owner is not None:
        _say(f"process {owner} is compiling the kernel in {lock.parent}; waiting for it")
        return False
    lock.unlink(missing_ok=True)
    _say(f"removed {lock}: the compile that made it did not finish")
    return True


def _holder(path: Path) -> int | None:
    """Return the id of a process that has ``path`` open. torch keeps its lock file open for as long as it compiles."""
    target = os.path.realpath(path)
    for links in Path("/proc").glob("[0-9]*/fd"):
        try:
            if any(os.path.realpath(link) == target for link in links.iterdir()):
                return int(links.parent.name)
        except OSError:  # ended meanwhile, or another user's
            continue
    return None


def _load() -> None:
    from deepspeed.accelerator import get_accelerator

    accelerator: Any = get_accelerator()
    builder = accelerator.create_op_builder("ShareMemCommBuilder")
    if builder is None or not builder.is_compatible():
        return
    try:
        with _own_ninja():
            builder.load(verbose=False)
    except (RuntimeError, ImportError, OSError) as error:
        raise DeviceError(
            f"DeepSpeed's CPU communication kernel cannot be compiled in {os.environ[EXTENSIONS_VARIABLE]}. "
            f"A C++ compiler (g++) and ninja must be installed. The compiler said: {error}"
        ) from error


@contextmanager
def _own_ninja() -> Iterator[None]:
    """Find this environment's ninja first: another version would not read its log, and would compile all over again."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Hold the builders' lock: freed by the operating system when its owner dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "agentr1.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not is_built(folder):
                _say("another process is compiling DeepSpeed's CPU communication kernel; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _mark(folder: Path) -> Path:
    return folder / f"{KERNEL}.built"


def _say(message: str) -> None:
    print(f"agentr1: {message}", file=sys.stderr, flush=True)


def main() -> int:
    """Build the kernel, or say that it is there."""
    folder = use_extensions_dir()
    if is_built(folder) and not (folder / KERNEL / "lock").exists():
        _say(f"kernel is compiled, in {folder}")
        return 0
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    try:
        ensure_kernel()
    except DeviceError as error:
        _say(str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
