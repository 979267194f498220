"""Builds this repository's development environment from a bare Python >= 3.11.

    python3 scripts/setup.py              the workspace's environment, in .venv (what `make setup` runs)
    python3 scripts/setup.py alfworld     the same and the original ALFWorld engine, part of which is compiled
    python3 scripts/setup.py alone NAME   an environment that holds one package alone, in .venvs/NAME
    python3 scripts/setup.py lock         maintainers: refresh uv.lock from the pyproject files

pip fetches, uv installs. pip obeys the machine's own settings (index, mirror, find-links), so this file
names no address; every wheel lands in wheelhouse/, and uv installs from that folder and nowhere else.
Wheels already there are kept, and each step can be interrupted: the next run takes up where this one stopped.

What this does not do: it installs no compiler and no Python, and it never changes uv.lock but by `lock`.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - an older Python reads this line and stops here, with a reason
    raise SystemExit(f"setup: error: Python {sys.version.split()[0]} is too old; make setup PYTHON=python3.11")

import logged
import workspace
from workspace import ROOT

BOOTSTRAP = ROOT / ".bootstrap"
WHEELHOUSE = ROOT / "wheelhouse"
PIP_LOG = BOOTSTRAP / "pip.log"
MACHINE_WHEELS = BOOTSTRAP / "machine.json"
BATCH = 35


def say(message: str) -> None:
    print(f"setup: {message}", flush=True)


def fail(message: str) -> None:
    raise SystemExit(f"setup: error: {message}")


# --- the two tools ---------------------------------------------------------------------------------------------


def bootstrap() -> None:
    """Make .bootstrap: a virtual environment with pip and the pinned uv, from the Python that runs this."""
    ready = BOOTSTRAP / "ready"
    state = f"python {sys.version.split()[0]} uv {workspace.uv_version()}"
    if ready.exists() and ready.read_text() == state:
        return
    say(f"making .bootstrap with pip and uv {workspace.uv_version()}")
    ready.unlink(missing_ok=True)
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(BOOTSTRAP / "venv")], capture_output=True, text=True
    )
    if made.returncode != 0:
        fail(
            f"{sys.executable} could not make a virtual environment:\n{made.stdout}{made.stderr}\n"
            "Install the operating system's package for it (python3-venv on Debian and Ubuntu) or choose another\n"
            "interpreter: make setup PYTHON=/path/to/python3.11"
        )
    pip(["install", f"uv=={workspace.uv_version()}"], "installing uv")
    ready.write_text(state)


def pip(arguments: Sequence[str], what: str) -> None:
    """Run the bootstrap's pip, its output in .bootstrap/pip.log.

    Raises:
        SystemExit: pip failed; the message ends with the last lines of the log.
    """
    if not try_pip(arguments):
        tail = "\n".join(PIP_LOG.read_text(errors="replace").splitlines()[-15:])
        fail(f"{what} failed; the last lines of {PIP_LOG.relative_to(ROOT)}:\n{tail}")


def try_pip(arguments: Sequence[str]) -> bool:
    programs = BOOTSTRAP / "venv/bin"
    command = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"  # some builds call plain `python`
    return logged.run(command, PIP_LOG, {**os.environ, "PATH": path}) == 0


def uv(arguments: Sequence[str], environment: Path | None = None) -> None:
    """Run the pinned uv offline, on the wheelhouse only, for the environment folder given."""
    settings = {
        **os.environ,
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": WHEELHOUSE.name,
        "UV_COMPILE_BYTECODE": "1",  # else every process compiles torch anew where Python is told to write no bytecode
        "UV_PROJECT_ENVIRONMENT": str(environment or ROOT / ".venv"),
    }
    for name in ("VIRTUAL_ENV", "UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"):
        settings.pop(name, None)
    command = [str(BOOTSTRAP / "venv/bin/uv"), *arguments]
    if subprocess.run(command, env=settings, cwd=ROOT).returncode != 0:
        fail(f"`uv {' '.join(arguments)}` failed; its message is above (a lock that is out of step: make lock)")


# --- wheels ----------------------------------------------------------------------------------------------------


def is_whole(wheel: Path) -> bool:
    """Whether the file is there and ends as a zip archive does (a copy cut short does not)."""
    return wheel.exists() and zipfile.is_zipfile(wheel)


def fetch(pip_arguments: Sequence[str], what: str, *, required: bool = True) -> list[str] | None:
    """Have pip fetch or build wheels, and move them into the wheelhouse whole.

    pip writes into a folder of its own first: the move is a rename, so that the wheelhouse holds no half file.

    Returns:
        The names of the wheel files that pip chose, or None where pip failed and `required` is false.
    """
    for left_behind in BOOTSTRAP.glob("incoming-*"):
        shutil.rmtree(left_behind)
    incoming = Path(tempfile.mkdtemp(prefix="incoming-", dir=BOOTSTRAP))
    WHEELHOUSE.mkdir(exist_ok=True)
    arguments = ["wheel", "--wheel-dir", str(incoming), "--find-links", str(WHEELHOUSE), *pip_arguments]
    if required:
        pip(arguments, what)
    elif not try_pip(arguments):
        return None
    chosen = sorted(path.name for path in incoming.glob("*.whl"))
    for name in chosen:
        if not is_whole(WHEELHOUSE / name):
            os.replace(incoming / name, WHEELHOUSE / name)
    shutil.rmtree(incoming)
    return chosen


def fetch_locked() -> list[str]:
    """Put the wheels that uv.lock names into the wheelhouse.

    Returns:
        The wheel files the lock names and this machine did not get (pip chose another build of the version).
    """
    locked = [wheel for wheel in workspace.locked_wheels() if wheel.name not in workspace.COMPILED]
    missing = [wheel for wheel in locked if not is_whole(WHEELHOUSE / wheel.filename)]
    if missing:
        say(f"fetching {len(missing)} of {len(locked)} locked wheels with pip into wheelhouse/")
        for wheel in missing:
            (WHEELHOUSE / wheel.filename).unlink(missing_ok=True)
        for start in range(0, len(missing), BATCH):  # an interruption loses one batch
            batch = missing[start : start + BATCH]
            fetch(["--no-deps", *(wheel.requirement for wheel in batch)], "fetching the locked wheels")
            say(f"fetched {start + len(batch)} of {len(missing)}")
    return [wheel.filename for wheel in missing if not is_whole(WHEELHOUSE / wheel.filename)]


def misfit() -> str | None:
    """Why the lock cannot serve this machine, or None. Fetches the locked wheels where it can."""
    machine = workspace.this_machine()
    if not any(workspace.marker_holds(marker, machine) for marker in workspace.locked_environments()):
        return f"it is for machines where {' or '.join(workspace.locked_environments())}; here {machine}"
    absent = fetch_locked()
    if absent:
        return f"it names {', '.join(absent)}, and pip chose another build of the same version here"
    return None


def machine_wheels() -> list[str] | None:
    """The wheels to install where uv.lock does not fit the machine; None where it fits.

    pip resolves the pyprojects' requirements for this machine. The locked versions are asked for first; only
    if no such set exists here are they given up. The outcome is kept in .bootstrap/machine.json until
    a pyproject, the lock or the interpreter changes; uv.lock itself stays as it is.
    """
    key = _machine_key()
    if MACHINE_WHEELS.exists():
        known = json.loads(MACHINE_WHEELS.read_text())
        if known["key"] == key and all(is_whole(WHEELHOUSE / name) for name in known["wheels"]):
            return known["wheels"]
    why = misfit()
    if why is None:
        return None
    say(
        f"uv.lock does not fit this machine: {why}.\n"
        "       Resolving the pyproject files' requirements for this machine, once, with the locked versions where\n"
        "       they can be had (a CUDA build of torch is several GB). uv.lock is left as it is."
    )
    wanted = workspace.requirements()
    wheels = fetch_required(wanted, [wheel.requirement for wheel in workspace.locked_wheels()])
    if wheels is None:
        say("the locked versions cannot be had together here; taking the newest that the pyproject files allow")
        wheels = fetch_required(wanted, [])
    MACHINE_WHEELS.write_text(json.dumps({"key": key, "wheels": wheels}, indent=1))
    return wheels


def fetch_required(wanted: Sequence[str], constraints: Sequence[str]) -> list[str] | None:
    """Fetch all that these requirements need.

    Returns:
        The wheel files pip chose, or None where no set of versions obeys the constraints.
    """
    bare = [r for r in wanted if workspace.requirement_name(r) in workspace.WITHOUT_DEPENDENCIES]
    limits, asked = BOOTSTRAP / "constraints.txt", BOOTSTRAP / "requirements.txt"
    limits.write_text("\n".join(constraints))
    asked.write_text("\n".join(r for r in wanted if r not in bare))
    chosen = fetch(["-c", str(limits), "-r", str(asked)], "fetching the requirements", required=not constraints)
    if chosen is None:
        return None
    return chosen + ((fetch(["--no-deps", *bare], "fetching data packages") or []) if bare else [])


def uncompiled() -> list[str]:
    """The requirements of the original ALFWorld engine that must be compiled and are not in the wheelhouse."""
    pins = (r for r in workspace.original_requirements() if workspace.requirement_name(r) in workspace.COMPILED)
    return [
        pin for pin in pins if not any(map(is_whole, WHEELHOUSE.glob(f"{pin.replace('-', '_').replace('==', '-')}-*")))
    ]


def compile_original() -> None:
    """Put the compiled parts of the original ALFWorld engine into the wheelhouse, once.

    Raises:
        SystemExit: the machine cannot compile them.
    """
    pins = uncompiled()
    if not pins:
        return
    if lacking := [name for name in ("g++", "make") if shutil.which(name) is None]:
        fail(f"the original ALFWorld engine is compiled with g++ and make; not found here: {', '.join(lacking)}")
    machine = workspace.this_machine()
    if not workspace.marker_holds("python_full_version < '3.13'", machine):
        fail(f"the original ALFWorld engine needs Python 3.11 or 3.12, not {machine['python_full_version']}")
    say(f"compiling {' and '.join(pins)} (GPL; for comparison only) into wheelhouse/, once: about three minutes")
    fetch(["--no-deps", *pins], "compiling the original ALFWorld engine")


def _machine_key() -> str:
    files = [ROOT / "uv.lock", ROOT / "pyproject.toml", *(f / "pyproject.toml" for f in workspace.member_folders())]
    digest = hashlib.sha256(repr(sorted(workspace.this_machine().items())).encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


# --- environments ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def marked(environment: Path) -> Iterator[None]:
    """Mark the environment as unfinished while it is written; one left unfinished before is made anew."""
    mark = BOOTSTRAP / f"unfinished-{environment.name}"
    if mark.exists():
        say(f"{environment.relative_to(ROOT)} was left unfinished; making it anew")
        shutil.rmtree(environment, ignore_errors=True)
    mark.touch()
    try:
        yield
    except SystemExit:  # uv refused and said why: what it had installed before is still whole
        mark.unlink()
        raise
    mark.unlink()


def install(environment: Path, package: str | None) -> None:
    """Bring an environment to what uv.lock (or this machine's own resolution) says.

    Args:
        environment: The folder of the virtual environment.
        package: The one workspace package to hold, with its test group; None for all and the root's dev group.
    """
    wheels = machine_wheels()
    python = ["--python", sys.executable]
    with marked(environment):
        if wheels is None:
            one = ["--package", package, "--no-default-groups", "--group", "test"] if package else ["--all-packages"]
            uv(["sync", "--quiet", "--frozen", *python, *one, *_original(package)], environment)
            return
        same_python = (environment / f"lib/python{sys.version_info.major}.{sys.version_info.minor}").exists()
        uv(["venv", "--quiet", "--allow-existing" if same_python else "--clear", *python, str(environment)])
        limits, overrides = BOOTSTRAP / "constraints.txt", BOOTSTRAP / "overrides.txt"
        limits.write_text("\n".join(workspace.wheel_pins(wheels)))
        overrides.write_text("\n".join(workspace.load(ROOT / "pyproject.toml")["tool"]["uv"]["override-dependencies"]))
        members = [ROOT / "packages" / package] if package else workspace.member_folders()
        group = f"packages/{package}/pyproject.toml:test" if package else "pyproject.toml:dev"
        editable = [argument for folder in members for argument in ("--editable", str(folder))]
        target = [
            "--python",
            str(environment / "bin/python"),
            "--constraints",
            str(limits),
            "--overrides",
            str(overrides),
        ]
        uv(["pip", "install", "--quiet", *target, *editable, "--group", group, *_original(package)])


def _original(package: str | None) -> list[str]:
    """The group with the original ALFWorld engine, where everything is installed and its parts have been compiled."""
    return [] if package or uncompiled() else ["--group", "original"]


def build_communication_kernel(environment: Path = ROOT / ".venv") -> None:
    """Compile DeepSpeed's shared-memory communication kernel once, so that no later launch does so in silence."""
    python = environment / "bin/python"
    settings = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    if subprocess.run([str(python), "-m", "agentr1_train.engine.build"], env=settings).returncode != 0:
        fail("DeepSpeed's communication kernel was not built; the message is above")


# --- commands --------------------------------------------------------------------------------------------------


def set_up() -> None:
    install(ROOT / ".venv", None)
    build_communication_kernel()
    say("ready: .venv/bin has python, agentr1-tools, agentr1-envs and agentr1-train")


def set_up_alfworld() -> None:
    compile_original()
    if machine_wheels() is not None:
        fetch_required(workspace.original_requirements(), [])
    install(ROOT / ".venv", None)


def set_up_alone(package: str) -> None:
    if package not in workspace.PACKAGES:
        fail(f"no package {package!r}; the packages are {', '.join(workspace.PACKAGES)}")
    install(ROOT / ".venvs" / package, package)


def lock() -> None:
    """Refresh uv.lock: pip fetches what the pyproject files ask for, at the locked versions where those still fit."""
    say("fetching what the pyproject files ask for")
    compile_original()
    wanted = [*workspace.requirements(), *workspace.original_requirements()]
    if fetch_required(wanted, [wheel.requirement for wheel in workspace.locked_wheels()]) is None:
        say("the locked versions no longer fit the pyproject files; taking the newest that fit")
        fetch_required(wanted, [])
    uv(["lock", "--python", sys.executable])


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    BOOTSTRAP.mkdir(exist_ok=True)
    with (BOOTSTRAP / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is at work in this folder; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description="Build this repository's development environment.")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("alfworld", help="the same and the original ALFWorld engine, part of which is compiled")
    alone = commands.add_parser("alone", help="an environment that holds one package alone, in .venvs/NAME")
    alone.add_argument("package", help=", ".join(workspace.PACKAGES))
    commands.add_parser("lock", help="refresh uv.lock from the pyproject files")
    arguments = parser.parse_args()
    with one_at_a_time():
        bootstrap()
        if arguments.command == "alone":
            set_up_alone(arguments.package)
        elif arguments.command == "alfworld":
            set_up_alfworld()
        elif arguments.command == "lock":
            lock()
        else:
            set_up()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\nsetup: interrupted; run the same command again, it goes on from here", file=sys.stderr)
        raise SystemExit(130) from None
