"""The record of a prepared catalogue, alone; `test_webshop_prepare.py` has what becomes of it."""

import json
from pathlib import Path

from agentr1_envs.webshop.official import FileRecord
from agentr1_envs.webshop.prepared import CATALOGUE_NAME, RECORD_NAME, check_prepared, write_record


def test_a_record_names_the_catalogue_and_its_sources(tmp_path: Path) -> None:
    (tmp_path / CATALOGUE_NAME).write_bytes(b"abc")
    write_record(tmp_path, 7, [FileRecord("items.json", 5, "f00d", True)], "en_core_web_sm 3.8.0")
    record = json.loads((tmp_path / RECORD_NAME).read_text())
    assert record["catalogue"] == {
        "name": CATALOGUE_NAME,
        "size": 3,
        "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    }
    assert record["sources"] == [{"name": "items.json", "size": 5, "sha256": "f00d", "published": True}]
    assert (record["products"], record["tagger"]) == (7, "en_core_web_sm 3.8.0")
    check_prepared(tmp_path / CATALOGUE_NAME)


def test_other_files_have_no_record(tmp_path: Path) -> None:
    (tmp_path / RECORD_NAME).write_text("nonsense")
    check_prepared(tmp_path / "mine.jsonl")
