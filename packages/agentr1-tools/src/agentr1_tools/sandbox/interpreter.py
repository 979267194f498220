"""Which Python runs inside a sandbox, and the files and folders it needs there. Starts that Python once, to ask it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentr1_tools.errors import SandboxUnavailableError

_SYSTEM_PYTHON = "/usr/bin/python3"
_LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/lib", "/lib32", "/lib64")
_DATA = ("/etc/ld.so.cache", "/usr/share/zoneinfo")
_QUESTION = (
    "import json, sys; print(json.dumps({'version': sys.version_info[:2], 'prefix': sys.prefix, "
    "'base': sys.base_prefix, 'executable': sys.executable}))"
)
_OLDEST = (3, 8)


@dataclass(frozen=True)
class Interpreter:
    """A Python of the host, as it appears in a sandbox.

    path: how it is called.
    files: the names under which its program must be found, `path` among them.
    program: the program itself.
    folders: folders it reads: the system's libraries, its own, and a virtual environment.
    links: symbolic links to make, as (target, place).
    """

    path: str
    files: tuple[str, ...]
    program: str
    folders: tuple[str, ...]
    links: tuple[tuple[str, str], ...] = ()


def default_path() -> str:
    """The system's Python, which every user may run; without one, that of this process."""
    return _SYSTEM_PYTHON if os.access(_SYSTEM_PYTHON, os.X_OK) else str(getattr(sys, "_base_executable", ""))


def find(path: str | None = None) -> Interpreter:
    """Ask an interpreter (by default `default_path()`) what it needs. Raises SandboxUnavailableError."""
    path = os.path.abspath(path or default_path())
    answer = _ask(path)
    if tuple(answer["version"]) < _OLDEST:
        version = ".".join(map(str, answer["version"]))
        raise SandboxUnavailableError(f"interpreter {path} is Python {version}; 3.8 or later is needed")
    prefix, base = str(answer["prefix"]), str(answer["base"])
    own = [prefix] if prefix != base else []
    wanted = dict.fromkeys((*_LIBRARIES, *_DATA, f"{base}/lib", *own))
    folders = [folder for folder in wanted if os.path.exists(folder) and not os.path.islink(folder)]
    links = tuple((os.readlink(place), place) for place in _LIBRARIES if os.path.islink(place))
    inside = [name for name in _names(path) if not any(name.startswith(f"{folder}/") for folder in folders)]
    return Interpreter(path, tuple(inside), os.path.realpath(path), tuple(folders), links)


def _ask(path: str) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [path, "-I", "-c", _QUESTION], capture_output=True, text=True, timeout=60, check=True, env={}
        )
        return json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise SandboxUnavailableError(
            f"interpreter {path} does not run ({error}); give interpreter=, the path of a Python 3.8 or later"
        ) from None


def _names(path: str) -> list[str]:
    """The path and each name its chain of symbolic links passes through."""
    names = [path]
    while os.path.islink(names[-1]) and len(names) < 40:
        names.append(os.path.normpath(str(Path(names[-1]).parent / os.readlink(names[-1]))))
    return names
