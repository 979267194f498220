"""Tells a full disk and exhausted memory in what libraries raise, which is seldom the class one would expect.

torch's writer and safetensors report a full disk as errors of their own, torch's CPU allocator exhausted memory as a
RuntimeError. Imports nothing heavy; it says what happened and mends nothing.
"""

import errno
from collections.abc import Iterator

_DISK_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DISK_WORDS = (
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    "file write failed",
    "unexpected pos ",
)
"""The last is what torch's writer finds when it closes a file that did not take all it wrote."""
_MEMORY_WORDS = ("not enough memory: you tried to allocate", "can't allocate memory", "CUDA out of memory")


def is_disk_full(error: BaseException) -> bool:
    """Return whether the disk, a quota or a limit on file sizes is behind an error."""
    return any(
        getattr(item, "errno", None) in _DISK_ERRNOS or any(word in str(item) for word in _DISK_WORDS)
        for item in _chain(error)
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the memory of the host or of a device is behind an error."""
    return any(
        isinstance(item, MemoryError)
        or type(item).__name__ == "OutOfMemoryError"
        or (isinstance(item, RuntimeError) and any(word in str(item) for word in _MEMORY_WORDS))
        for item in _chain(error)
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
