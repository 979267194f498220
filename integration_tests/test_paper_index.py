"""The index of papers: every function it names exists, and no estimator or preset's formula is left out of it."""

import ast
import re
from pathlib import Path

import pytest
from agentr1_train.advantages.registry import ESTIMATORS

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "packages/agentr1-train/src/agentr1_train"
NAMED = re.compile(r"`([\w/]+\.py):(\w+)`")


def rows() -> list[list[str]]:
    lines = (ROOT / "docs/paper_index.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in cells if row[0] != "formula" and not set(row[0]) <= {"-", " "}]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_the_function_of_a_formula_exists(row: list[str]) -> None:
    formula, source, function, ours = row
    assert formula
    assert source
    assert ours
    ((path, name),) = NAMED.findall(function)
    tree = ast.parse((SOURCE / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, f"{path} has no {name}"


def test_every_estimator_stands_in_it() -> None:
    named = {name for row in rows() for _, name in NAMED.findall(row[2])}
    assert set(ESTIMATORS) <= named


def test_every_paper_that_the_code_of_credit_cites_stands_in_it() -> None:
    index = (ROOT / "docs/paper_index.md").read_text(encoding="utf-8")
    files = [*SOURCE.glob("advantages/*.py"), SOURCE / "losses.py", SOURCE / "branching.py", SOURCE / "collection.py"]
    cited = {number for file in files for number in re.findall(r"\b\d{4}\.\d{5}\b", file.read_text(encoding="utf-8"))}
    assert len(cited) >= 12
    assert {number for number in cited if number not in index} == set()
