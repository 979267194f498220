"""The pages on faults: every test they name exists, and no fault stands there without one."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/known_faults.md"
INJECTED = ROOT / "docs/faults.md"
NAMED = re.compile(r"`([\w/.-]+\.py)::(\w+)`")


def rows(page: Path = PAGE) -> list[list[str]]:
    """Cells of each fault's row."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] not in ("fault", "what breaks") and not set(row[0]) <= {"-", " "}]


def test_every_kind_of_fault_is_there() -> None:
    environments, tools, rollouts, credit, trainer = re.split(
        "## (?:Tools|Rollouts|Credit|Trainer)", PAGE.read_text(encoding="utf-8")
    )
    assert environments.count("\n| ") >= 2 + 17
    assert tools.count("\n| ") >= 2 + 15
    assert rollouts.count("\n| ") >= 2 + 12
    assert credit.count("\n| ") >= 2 + 10
    assert trainer.count("\n| ") >= 2 + 12


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_the_tests_of_a_fault_exist(row: list[str]) -> None:
    fault, seen, here, tests = row
    assert fault
    assert seen
    assert here
    check_named(fault, tests)


@pytest.mark.parametrize("row", rows(INJECTED), ids=lambda row: row[0])
def test_the_tests_of_an_injected_fault_exist(row: list[str]) -> None:
    breaks, happens, tests = row
    assert happens
    check_named(breaks, tests)


def check_named(fault: str, tests: str) -> None:
    named = NAMED.findall(tests)
    assert named, f"{fault}: names no test"
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in functions, f"{fault}: {path} has no {name}"
