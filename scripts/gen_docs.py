"""Writes the generated parts of the documentation: help texts and tables that the code already states.

    .venv/bin/python scripts/gen_docs.py           rewrite what stands between the markers
    .venv/bin/python scripts/gen_docs.py --check   change nothing; name the stale parts and exit with 1

A generated part stands between `<!-- generated: NAME -->` and `<!-- end generated -->`; NAME is a key of SECTIONS.
Everything outside the markers is written by hand and left alone. The pages of the environments (`env_pages`) are
generated whole.
"""

import argparse
import ast
import dataclasses
import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import env_pages
from workspace import PACKAGES, ROOT, load

DOCS = ROOT / "docs"
MARKED_PAGES = (ROOT / "README.md", *sorted(ROOT.glob("packages/*/README.md")))
"""Pages outside the folder of the documentation."""
MARKED = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end generated -->)", re.DOTALL)


def help_texts(package: str) -> str:
    """`--help` of a package's console scripts and of their sub-commands."""
    scripts = load(ROOT / "packages" / package / "pyproject.toml")["project"]["scripts"]
    parts: list[str] = []
    for script in scripts:
        parts.append(_help(script))
        parts += [_help(script, command) for command in SUBCOMMANDS[script]]
    return "\n\n".join(parts)


SUBCOMMANDS: dict[str, tuple[str, ...]] = {
    "agentr1-tools": ("list", "describe", "call", "check", "serve", "serve-retriever"),
    "agentr1-envs": ("list", "play", "prepare", "download", "generate", "serve"),
    "agentr1-train": ("presets", "init-model", "import-gguf"),
}
"""Commands whose own help is shown; what `agentr1-train RECIPE.toml --help` lists is the page on recipes."""


def _help(*command: str) -> str:
    settings = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PYTHONWARNINGS": "ignore"}
    program = Path(sys.executable).parent / command[0]
    with tempfile.TemporaryDirectory() as elsewhere:
        shown = subprocess.run(
            [program, *command[1:], "--help"], env=settings, cwd=elsewhere, capture_output=True, text=True
        )
    text = "\n".join(line.rstrip() for line in shown.stdout.strip().splitlines())
    if shown.returncode != 0 or not text:
        raise SystemExit(
            f"gen_docs: `{' '.join(command)} --help` exits with {shown.returncode}: {shown.stderr.strip()}"
        )
    return f'```text title="{" ".join(command)} --help"\n{text}\n```'


def metrics_table() -> str:
    """The glossary of logged names, by section."""
    metrics: dict[str, str] = import_module("agentr1_train.metrics").METRICS
    lines: list[str] = []
    section = ""
    for name, meaning in metrics.items():
        if name.partition("/")[0] != section:
            section = name.partition("/")[0]
            lines += ["", f"## {section}", "", "| name | meaning |", "| --- | --- |"]
        lines.append(f"| `{name}` | {_cell(meaning)} |")
    return "\n".join(lines).strip()


def recipe_tables() -> str:
    """One table for each section of a recipe: field, type, default, what its docstring says."""
    config = import_module("agentr1_train.config")
    kinds = (config.Recipe, *(item.type for item in dataclasses.fields(config.Recipe)))
    files = sorted({inspect.getfile(kind) for kind in kinds if dataclasses.is_dataclass(kind)})
    notes = {key: note for file in files for key, note in _field_docstrings(Path(file)).items()}
    parts = ["## Top level", "", _fields(config.Recipe, notes, plain_only=True)]
    for section in dataclasses.fields(config.Recipe):
        if dataclasses.is_dataclass(section.type):
            kind = section.type
            parts += ["", f"## [{section.name}]", "", inspect.getdoc(kind) or "", "", _fields(kind, notes)]
    return "\n".join(parts)


def _fields(kind: type, notes: dict[tuple[str, str], str], *, plain_only: bool = False) -> str:
    lines = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for item in dataclasses.fields(kind):
        if plain_only and dataclasses.is_dataclass(item.type):
            continue
        default = item.default_factory() if item.default is dataclasses.MISSING else item.default  # type: ignore[misc]
        shown = "of the preset" if default is None else f"`{_toml(default)}`"
        type_name = item.type.__name__ if isinstance(item.type, type) else str(item.type)
        type_name = type_name.replace("typing.", "").removesuffix(" | None")
        lines.append(
            f"| `{item.name}` | `{_cell(type_name)}` | {shown} | {_cell(notes.get((kind.__name__, item.name), ''))} |"
        )
    return "\n".join(lines)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _field_docstrings(path: Path) -> dict[tuple[str, str], str]:
    """The string that follows each annotated field of each class, by (class, field)."""
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, after in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                found[node.name, field.target.id] = " ".join(str(after.value.value).split())
    return found


def presets_table() -> str:
    """The named algorithms, each as its choices."""
    presets = import_module("agentr1_train.presets")
    lines = [
        f"| preset | {' | '.join(presets.CHOICES)} | also set |",
        f"| --- | {'--- | ' * len(presets.CHOICES)}--- |",
    ]
    for (name, *choices, _), values in zip(presets.preset_rows(), presets.PRESETS.values(), strict=True):
        others = ", ".join(f"`{key} = {_toml(value)}`" for key, value in values.items() if key not in presets.CHOICES)
        lines.append(f"| `{name}` | {' | '.join(choices)} | {others} |")
    return "\n".join(lines)


def layers() -> str:
    """The trainer's layers as the import contract states them, bottom first."""
    (contract,) = (
        c for c in load(ROOT / "pyproject.toml")["tool"]["importlinter"]["contracts"] if c["type"] == "layers"
    )
    package = ROOT / "packages/agentr1-train/src/agentr1_train"
    rows: list[str] = []
    for layer in reversed(contract["layers"]):
        names = [name.strip(" ()") for name in re.split(r"[|:]", layer)]
        present = [name for name in names if (package / f"{name}.py").exists() or (package / name).is_dir()]
        if present:
            rows.append(f"| {len(rows)} | {' '.join(f'`{name}`' for name in present)} |")
    return "\n".join(["| layer | modules |", "| --- | --- |", *rows])


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|").replace("<", "&lt;") if "`" not in text else _code_cell(text)


def _code_cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


SECTIONS: dict[str, Callable[[], str]] = {
    **{f"help-{package}": (lambda package=package: help_texts(package)) for package in PACKAGES},
    "metrics": metrics_table,
    "recipe": recipe_tables,
    "presets": presets_table,
    "ids": lambda: env_pages.ids_table(""),
    "ids-from-root": lambda: env_pages.ids_table("docs/environments/"),
    "ids-without-links": lambda: env_pages.ids_table(None),
    "layers": layers,
}


def rewritten(text: str) -> Iterator[tuple[str, str, str]]:
    """For each marked part of a page: its name, what stands there, what should."""
    for match in MARKED.finditer(text):
        name = match["name"]
        if name not in SECTIONS:
            raise SystemExit(f"gen_docs: no section {name!r}; there are {', '.join(SECTIONS)}")
        yield name, match.group(), f"{match.group(1)}\n{SECTIONS[name]()}\n\n{match.group(3)}"


def environment_pages(check: bool) -> Iterator[str]:
    """Write the pages of the environments; yields those that were not as they should be."""
    wanted = {DOCS / path: text for path, text in env_pages.pages().items()}
    index = DOCS / env_pages.FOLDER / "index.md"
    present = {page for page in index.parent.glob("*.md") if page != index}
    for page in sorted(present | wanted.keys()):
        if page in present and page.read_text(encoding="utf-8") == wanted.get(page):
            continue
        yield str(page.relative_to(ROOT))
        if check:
            continue
        if page in wanted:
            page.write_text(wanted[page], encoding="utf-8")
        else:
            page.unlink()


def marked_parts(check: bool) -> Iterator[str]:
    """Write the parts between markers; yields those that were not as they should be."""
    for page in (*MARKED_PAGES, *sorted(DOCS.rglob("*.md"))):
        text = page.read_text(encoding="utf-8")
        new = text
        for name, old_part, new_part in rewritten(text):
            if old_part != new_part:
                yield f"{page.relative_to(ROOT)}: {name}"
                new = new.replace(old_part, new_part)
        if not check and new != text:
            page.write_text(new, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the generated parts of the documentation.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a part is stale")
    check = parser.parse_args().check
    stale = [*environment_pages(check), *marked_parts(check)]
    for part in stale:
        print(f"{'stale' if check else 'written'}: {part}")
    if check and stale:
        print("gen_docs: run .venv/bin/python scripts/gen_docs.py", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
