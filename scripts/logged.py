"""Runs a program with its output in a log; on a terminal, one line says what it is doing.

What this does not do: it judges nothing; a failure is the exit status, and the log says why.
"""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

_WORTH_SHOWING = ("Collecting", "Downloading", "Building", "Saved", "Processing")


def run(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> int:
    """The exit status of a command. An interruption ends the command too."""
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        with _ended_with_us(process), _progress() as show:
            for line in process.stdout or ():
                file.write(line)
                show(line)
    return process.returncode


@contextlib.contextmanager
def _ended_with_us(process: subprocess.Popen) -> Iterator[None]:
    try:
        yield
        process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns - 1

    def show(line: str) -> None:
        if on_terminal and line.lstrip().startswith(_WORTH_SHOWING):
            print(f"\r\x1b[K{line.strip()[:width]}", end="", flush=True)

    yield show
    if on_terminal:
        print("\r\x1b[K", end="", flush=True)
