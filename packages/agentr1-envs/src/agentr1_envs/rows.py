"""Rows of data files, with errors that name the line and the field.

Reads jsonl, json and parquet into `Row`s; knows nothing of any task. A row is only touched through typed getters, so
a missing or mistyped field is always reported the same way.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from agentr1_envs.errors import DataRowError, SettingError, did_you_mean

SUFFIXES = (".parquet", ".jsonl", ".json")

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One row: where it stands and what it holds."""

    path: Path
    line: int
    """1-based line of a jsonl file; 1-based item of a json or parquet file."""
    fields: Fields

    def error(self, field: str, problem: str) -> DataRowError:
        """An error that names this row and `field`."""
        return DataRowError(self.path, self.line, field, problem)

    def has(self, field: str) -> bool:
        """True when the field is there and not null."""
        return self.fields.get(field) is not None

    def text(self, field: str, default: str | None = None) -> str:
        """A string field (a number is written out); blank counts as missing.

        Raises:
            DataRowError: it is missing with no default, or holds something else.
        """
        value = self.fields.get(field)
        if default is not None and (value is None or value == ""):
            return default
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value.strip():
            near = "" if field in self.fields else did_you_mean(field, self.fields)
            raise self.error(field, f"needs a non-empty string, found {_describe(value)}.{near}")
        return value

    def items(self, field: str) -> list[Any]:
        """A list field; empty when missing.

        Raises:
            DataRowError: it holds something else.
        """
        value = self.fields.get(field)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error(field, f"needs a list, found {_describe(value)}.")
        return cast("list[Any]", value)

    def section(self, field: str) -> "Row":
        """A nested object as a row of its own; empty when missing.

        Raises:
            DataRowError: it holds something else.
        """
        value = self.fields.get(field)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.error(field, f"needs an object, found {_describe(value)}.")
        return Row(self.path, self.line, cast("Fields", value))


def read_rows(path: Path) -> Iterator[Row | DataRowError]:
    """Rows of a jsonl, json or parquet file in order; a line that is no JSON object comes as its error.

    A json file holds a list of objects, or an object with such a list under "data".

    Raises:
        SettingError: another suffix, or a json or parquet file that cannot be read at all.
    """
    if path.suffix == ".jsonl":
        yield from _read_jsonl(path)
    elif path.suffix == ".json":
        yield from _number(path, _json_items(path))
    elif path.suffix == ".parquet":
        yield from _number(path, _parquet_items(path))
    else:
        raise SettingError(f"{path}: files are read by suffix; legal: {', '.join(SUFFIXES)}.")


def _read_jsonl(path: Path) -> Iterator[Row | DataRowError]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                item: Any = json.loads(line)
            except (json.JSONDecodeError, UnicodeDecodeError) as error:
                yield DataRowError(path, number, "(whole line)", f"is no JSON: {error}")
                continue
            yield _row(path, number, item)


def _json_items(path: Path) -> list[Any]:
    try:
        content: Any = json.loads(path.read_bytes())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is no JSON: {error}") from error
    if isinstance(content, dict):
        content = cast("Fields", content).get("data")
    if not isinstance(content, list):
        raise SettingError(f"{path}: needs a list of objects, or an object with such a list under 'data'.")
    return cast("list[Any]", content)


def _parquet_items(path: Path) -> Iterator[Any]:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    try:
        source = parquet.ParquetFile(path)
        for batch in source.iter_batches(batch_size=1024):
            yield from batch.to_pylist()
    except arrow.ArrowInvalid as error:
        raise SettingError(f"{path} is no readable parquet file: {error}") from error


def _number(path: Path, items: Any) -> Iterator[Row | DataRowError]:
    for number, item in enumerate(items, start=1):
        yield _row(path, number, item)


def _row(path: Path, number: int, item: Any) -> Row | DataRowError:
    if not isinstance(item, dict):
        return DataRowError(path, number, "(whole line)", f"needs an object, found {_describe(item)}")
    return Row(path, number, cast("Fields", item))


def _describe(value: object) -> str:
    if value is None:
        return "nothing"
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 60 else shown[:57] + '...'}"
