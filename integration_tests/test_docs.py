"""The documentation is executed: python blocks run, recipes load, commands exist, generated parts are current."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from agentr1_train.config import recipe_from_dict

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("packages/*/README.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(?P<language>\w+)(?P<attributes>[^\n]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
BIN = Path(sys.executable).parent

# Runs code in a sandbox, which the machine has to offer.
SANDBOX = ROOT / "docs/guides/sandbox.md"

# Commands of the operating system that a page may name; they are not run.
OF_THE_SYSTEM = frozenset({"sudo", "git", "cd", "export"})


def blocks(page: Path, language: str) -> list[tuple[int, str, str]]:
    """(line of the fence, attributes, body) of each fenced block in this language."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start()) + 1, match["attributes"], match["body"])
        for match in BLOCK.finditer(text)
        if match["language"] == language
    ]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


def commands() -> list[tuple[str, str]]:
    return [
        (f"{name(page)}:{line + 1 + body.count(chr(10), 0, found.start())}", found[1].replace("\\\n", ""))
        for page in PAGES
        for line, _, body in blocks(page, "console")
        for found in re.finditer(r"^\$ (.*(?:(?<=\\)\n.*)*)", body, re.MULTILINE)
    ]


def test_pages_hold_code_and_commands() -> None:
    assert len(pages_with("python")) >= 6
    assert len(commands()) >= 10


@pytest.mark.parametrize("page", pages_with("python"), ids=name)
def test_python_blocks_run_in_order(page: Path, tmp_path: Path) -> None:
    """All blocks of a page make one script, as a reader would type it, in a process and folder of its own."""
    if page == SANDBOX and not shutil.which("bwrap") and os.environ.get("CI") != "true":
        pytest.skip("no sandbox: apt install bubblewrap")
    script = tmp_path / "page.py"
    source = "\n".join(f"# {name(page)}, line {line}\n{body}" for line, _, body in blocks(page, "python"))
    # The guard lets environments in worker processes import the page without running it again.
    indented = "".join(f"    {text}" if text.strip() else text for text in source.splitlines(keepends=True))
    script.write_text(f"if __name__ == '__main__':\n{indented}", encoding="utf-8")
    settings = {**os.environ, "PYTHONWARNINGS": "error", "OMP_NUM_THREADS": "1"}
    settings.pop("AGENTR1_DATA", None)
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{name(page)}:\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", pages_with("toml"), ids=name)
def test_toml_blocks_parse_and_recipes_load(page: Path) -> None:
    for line, attributes, body in blocks(page, "toml"):
        table = tomllib.loads(body)
        if 'title="recipe.toml"' in attributes:
            assert recipe_from_dict(table, f"{name(page)}:{line}").env.id


@pytest.mark.parametrize(("place", "command"), commands(), ids=[place for place, _ in commands()])
def test_commands_exist(place: str, command: str) -> None:
    program, *arguments = shlex.split(command)
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        assert {argument for argument in arguments if "=" not in argument} <= targets, place
        return
    if program in OF_THE_SYSTEM:
        return
    assert program.startswith(".venv/bin/"), f"{place}: say where {program!r} is: .venv/bin/{program}"
    assert (BIN / Path(program).name).exists(), f"{place}: there is no {program}"
    for argument in arguments:
        if argument.endswith((".toml", ".py")):
            assert (ROOT / argument).is_file(), f"{place}: there is no {argument}"
    subcommand = next((argument for argument in arguments if re.fullmatch(r"[a-z][a-z-]+", argument)), None)
    if arguments and arguments[0] == subcommand:
        assert subcommand in _help(Path(program).name), f"{place}: {program} has no command {subcommand!r}"


def _help(program: str) -> str:
    settings = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    shown = subprocess.run([BIN / program, "--help"], env=settings, capture_output=True, text=True, check=True)
    return shown.stdout


def test_generated_parts_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/gen_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    present = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert listed == present
