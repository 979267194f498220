"""Builds the three packages' wheels and tries them as a user would: plain pip, an environment of its own.

Works offline: pip takes everything from wheelhouse/ (filled by setup.py) and from the wheels just built.
What this does not do: it runs no tests; it checks that what is published installs, imports and starts.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from workspace import PACKAGES, ROOT, load

DIST = ROOT / "dist"
ENVIRONMENT = ROOT / ".venvs/wheels"
OFFLINE = ["--quiet", "--disable-pip-version-check", "--no-index", "--find-links", str(ROOT / "wheelhouse")]


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a command; its output is shown only if it fails.

    Raises:
        SystemExit: the command failed.
    """
    settings = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=settings, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"wheels: `{' '.join(map(str, command))}` failed:\n{done.stdout}{done.stderr}")


def module_of(package: str) -> str:
    return package.replace("-", "_")


def build() -> list[Path]:
    """Build one wheel for each package into dist/ and look inside."""
    shutil.rmtree(DIST, ignore_errors=True)
    for package in PACKAGES:
        run(ENVIRONMENT / "bin/pip", "wheel", *OFFLINE, "--no-deps", "-w", DIST, ROOT / "packages" / package)
    wheels = sorted(DIST.glob("*.whl"))
    if len(wheels) != len(PACKAGES):
        raise SystemExit(f"wheels: {len(PACKAGES)} wheels expected in dist/, found {[w.name for w in wheels]}")
    for wheel in wheels:
        check_contents(wheel)
    return wheels


def check_contents(wheel: Path) -> None:
    """Every module of the source tree, the type marker and the licence field are in the wheel; no test is."""
    module = wheel.name.split("-")[0]
    source = ROOT / "packages" / module.replace("_", "-") / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / module).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = set(zipfile.ZipFile(wheel).namelist())
    if missing := sorted(wanted - held):
        raise SystemExit(f"wheels: {wheel.name} lacks {', '.join(missing)}")
    if f"{module}/py.typed" not in held:
        raise SystemExit(f"wheels: {wheel.name} has no {module}/py.typed")
    if strays := [name for name in held if not name.startswith((f"{module}/", f"{module}-"))]:
        raise SystemExit(f"wheels: {wheel.name} also installs {', '.join(strays)}")


def main() -> None:
    print("wheels: making an environment of its own in .venvs/wheels", flush=True)
    venv.create(ENVIRONMENT, clear=True, with_pip=True, symlinks=True)
    wheels = build()
    print(f"wheels: built {', '.join(wheel.name for wheel in wheels)}; installing them with pip", flush=True)
    run(ENVIRONMENT / "bin/pip", "install", *OFFLINE, *wheels)
    run(ENVIRONMENT / "bin/pip", "check", "--disable-pip-version-check")
    with tempfile.TemporaryDirectory() as elsewhere:
        for package in PACKAGES:
            run(ENVIRONMENT / "bin/python", "-c", f"import {module_of(package)}", cwd=Path(elsewhere))
            for script in load(ROOT / "packages" / package / "pyproject.toml")["project"].get("scripts", {}):
                run(ENVIRONMENT / "bin" / script, "--help", cwd=Path(elsewhere))
    print("wheels: they install with plain pip, import and start")


if __name__ == "__main__":
    sys.exit(main())
