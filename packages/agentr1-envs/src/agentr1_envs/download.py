"""Fetch the official files from the Hugging Face hub, and prepare them. Needs a network and `huggingface_hub`."""

from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from socket import getaddrinfo
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from agentr1_envs.errors import DependencyMissingError, DownloadError, require_choice
from agentr1_envs.loader import Dataset
from agentr1_envs.prepare import Prepared, prepare

INSTALL = 'pip install "agentr1-envs[download]"'


def download(dataset: Dataset, out: Path, split: str | None = None) -> tuple[list[Prepared], int]:
    """Fetch a dataset's official files and write them to `out` as `prepare` does.

    Args:
        dataset: what to fetch.
        out: a folder.
        split: only this split; None fetches all.

    Returns:
        What was written, and how many passages the corpus has.

    Raises:
        DependencyMissingError: `huggingface_hub` is not installed. DownloadError: no network, or the hub refuses.
        SettingError: an unknown split.
    """
    hub, files = _hub(), dataset.hub
    if files is None:
        raise DownloadError(f"The files of {dataset.name} are on no hub; pass data=FOLDER to the environment.")
    if split is not None:
        require_choice("--split", split, (name for name, _ in files.files))
    sources: dict[str, list[Path]] = {}
    try:
        check_network(import_module("huggingface_hub.constants").ENDPOINT)
        names: list[str] = hub.list_repo_files(files.repository, repo_type="dataset")
        for of_split, pattern in files.files:
            if split is not None and of_split != split:
                continue
            chosen = sorted(name for name in names if fnmatch(name, pattern))
            if not chosen:
                raise DownloadError(f"{files.repository} holds no file {pattern}; its layout has changed.")
            sources[of_split] = [
                Path(hub.hf_hub_download(files.repository, name, repo_type="dataset")) for name in chosen
            ]
    except DownloadError:
        raise
    except Exception as error:  # the hub raises its own, httpx's and the system's errors; all mean the same here
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise DownloadError(
            f"Could not fetch {files.repository}: {first_line}. Check the network and try again; or bring the "
            f"official files and run `agentr1-envs prepare {dataset.name} --source PATH --out {out}`; or play the "
            "bundled sample, which needs no download."
        ) from error
    return prepare(dataset, sources, out)


def check_network(endpoint: str) -> None:
    """Fail at once where the host's name cannot be resolved; its client would try again for half a minute.

    Raises:
        OSError: it cannot.
    """
    host = urlsplit(endpoint).hostname
    if host and not getproxies():
        getaddrinfo(host, 443)


def _hub() -> Any:
    try:
        return import_module("huggingface_hub")
    except ImportError as error:
        raise DependencyMissingError(f"Downloading needs huggingface_hub, which is not installed: {INSTALL}") from error
