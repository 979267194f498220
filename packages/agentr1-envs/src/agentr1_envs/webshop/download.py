"""Fetch the benchmark's own files from Google Drive, where its authors keep them. Needs a network and `gdown`."""

from importlib import import_module
from pathlib import Path
from typing import Any

from agentr1_envs.download import INSTALL, check_network
from agentr1_envs.errors import DataMismatchError, DependencyMissingError, DownloadError
from agentr1_envs.webshop.catalogue import NAME
from agentr1_envs.webshop.official import HUMAN, PAIRS, PUBLISHED, SIZES, ShopSize, verify

DRIVE = "https://drive.google.com/uc?id="

_RETRIES = 3
_TIMEOUT = 60.0
"""Seconds to wait for the next bytes."""


def official_names(size: ShopSize) -> tuple[str, ...]:
    """The files of a set, the smallest first."""
    names = (SIZES[size], PAIRS[SIZES[size]], HUMAN)
    return tuple(sorted(names, key=lambda name: PUBLISHED[name].size or 0))


def fetch_official(folder: Path, size: ShopSize) -> Path:
    """Bring the files of a set into a folder, each checked; those that are there already are only checked.

    Args:
        folder: made if need be. A file that was interrupted goes on where it stopped.
        size: "small" (10 MB) or "full" (5.7 GB).

    Returns:
        The folder.

    Raises:
        DependencyMissingError: `gdown` is not installed. DownloadError: no network, or Google Drive refuses; the
        message says how to fetch the files by hand. DataMismatchError: a file that was there is not the published one.
    """
    names = official_names(size)
    missing = [name for name in names if not (folder / name).is_file()]
    for name in names:
        if name not in missing:
            verify(folder / name)
    gdown = _gdown() if missing else None
    for name in missing:
        try:
            check_network(DRIVE)
            folder.mkdir(parents=True, exist_ok=True)
            _fetch(gdown, folder / name)
        except Exception as error:  # gdown raises its own, requests' and the system's errors; all mean the same here
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            raise DownloadError(f"Could not fetch {name}: {reason}. {_by_hand(folder, missing)}") from error
    return folder


def _fetch(gdown: Any, path: Path) -> None:
    url = f"{DRIVE}{PUBLISHED[path.name].drive_id}"
    gdown.download(url=url, output=str(path), resume=True, retries=_RETRIES, timeout=_TIMEOUT, use_cookies=False)
    try:
        verify(path)
    except DataMismatchError:
        path.unlink()  # Google Drive answers with a page of its own when it refuses
        raise


def _by_hand(folder: Path, missing: list[str]) -> str:
    links = ", ".join(
        f"{name} from {DRIVE}{PUBLISHED[name].drive_id}" for name in missing if not (folder / name).exists()
    )
    return (
        f"Google Drive refuses files that many people fetch: try again later, or fetch with a browser {links}; "
        f"then run `agentr1-envs prepare {NAME} --source {folder}`. The bundled shop needs no download."
    )


def _gdown() -> Any:
    try:
        return import_module("gdown")
    except ImportError as error:
        raise DependencyMissingError(f"Downloading needs gdown, which is not installed: {INSTALL}") from error
