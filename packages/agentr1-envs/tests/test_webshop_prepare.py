import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.errors import DataMismatchError, DataNotFoundError, DataRowError, SettingError
from agentr1_envs.webshop import official
from agentr1_envs.webshop import prepare as prepare_module
from agentr1_envs.webshop.catalogue import find_catalogue, open_catalogue
from agentr1_envs.webshop.official import Published, sha256_of
from agentr1_envs.webshop.prepare import prepare_catalogue
from agentr1_envs.webshop.prepared import RECORD_NAME

ROWS: list[dict[str, Any]] = [
    {"asin": "B1", "name": "Green Tea", "query": " Tea", "options": {"Size": ["A/B"]}, "title_nouns": ["tea"]},
    {"asin": "B1", "name": "Again", "title_nouns": []},
    {"asin": "B2", "name": "Black Tea", "instruction": "Find tea", "title_nouns": ["tea"]},
]


def own(path: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_the_real_set_comes_back_the_same(small_set: Path, tmp_path: Path) -> None:
    made = prepare_catalogue(small_set, tmp_path / "out")
    before, after = open_catalogue(find_catalogue(small_set)), open_catalogue(find_catalogue(tmp_path / "out"))
    assert made.products == len(after.products) == 1000
    assert (after.products, made.tagger, made.skipped) == (before.products, "", ())
    first = made.path.read_bytes()
    assert prepare_catalogue(small_set, tmp_path / "out").path.read_bytes() == first  # no clock in it


def test_official_files_are_joined_checked_and_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = [{"asin": f"B{n}", "name": "Tea", "pricing": "$4.50"} for n in range(3)]
    source = tmp_path / "source"
    source.mkdir()
    (source / "items_shuffle_1000.json").write_text(json.dumps(items))
    (source / "items_ins_v2_1000.json").write_text(json.dumps({"B1": {"attributes": ["x"], "instruction": "Find tea"}}))
    known = {path.name: Published(path.stat().st_size, sha256_of(path)) for path in source.iterdir()}
    monkeypatch.setattr(official, "PUBLISHED", known)
    monkeypatch.setattr(prepare_module, "with_nouns", lambda products, tagger: products)
    monkeypatch.setattr(prepare_module, "find_tagger", lambda tagger: "made_up")
    made = prepare_catalogue(source, tmp_path / "out")
    assert [(record.name, record.published) for record in made.sources] == [
        ("items_ins_v2_1000.json", True),
        ("items_shuffle_1000.json", True),
    ]
    record = json.loads((tmp_path / "out" / RECORD_NAME).read_text())
    assert (record["products"], record["tagger"], made.products) == (3, "made_up", 3)
    assert {item["name"]: item["sha256"] for item in record["sources"]} == {n: p.sha256 for n, p in known.items()}
    rows = [json.loads(line) for line in gzip.decompress(made.path.read_bytes()).splitlines()]
    assert (rows[1]["instruction"], rows[1]["attributes"], rows[0]["attributes"]) == ("Find tea", ["x"], ["DUMMY_ATTR"])

    (source / "items_shuffle_1000.json").write_text(json.dumps(items).replace("Tea", "Ale"))
    with pytest.raises(DataMismatchError, match=r"has sha256 .* the published file .* fetch it again"):
        prepare_catalogue(source, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_files_with_no_known_checksum_are_noted_too(tmp_path: Path) -> None:
    source = own(tmp_path / "mine.jsonl")
    (record,) = prepare_catalogue(source, tmp_path / "out").sources
    assert (record.name, record.sha256, record.published) == ("mine.jsonl", sha256_of(source), False)


def test_a_catalogue_that_changed_after_it_was_prepared_is_refused(tmp_path: Path) -> None:
    path = prepare_catalogue(own(tmp_path / "mine.jsonl"), tmp_path / "out").path
    assert len(open_catalogue(path).products) == 2
    whole = path.read_bytes()
    os.utime(path, ns=(1, 1))
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DataMismatchError, match=r"its record says .*agentr1-envs prepare webshop"):
        open_catalogue(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(DataMismatchError, match=r"bytes, its record says"):
        open_catalogue(path)
    (tmp_path / "out" / RECORD_NAME).write_text("{}")
    with pytest.raises(DataMismatchError, match="no record"):
        open_catalogue(path)
    path.write_bytes(whole)
    (tmp_path / "out" / RECORD_NAME).unlink()
    assert len(open_catalogue(path).products) == 2


def test_bad_rows_are_refused_or_skipped_and_leave_nothing_half_made(tmp_path: Path) -> None:
    source = own(tmp_path / "mine.jsonl", [*ROWS, {"name": "no asin"}])
    source.write_text(source.read_text() + "\n{broken")
    with pytest.raises(DataRowError, match="line 4, field 'asin'"):
        prepare_catalogue(source, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    made = prepare_catalogue(source, tmp_path / "out", on_bad_row="skip")
    assert (made.products, [line.split(", ")[1] for line in made.skipped]) == (2, ["line 4", "line 5"])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [made.path.name, RECORD_NAME]


def test_a_write_that_fails_leaves_the_old_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = own(tmp_path / "mine.jsonl")
    path = prepare_catalogue(source, tmp_path / "out").path
    before = path.read_bytes()

    def fail(product: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(prepare_module, "product_row", fail)
    with pytest.raises(OSError, match="disk full"):
        prepare_catalogue(source, tmp_path / "out")
    assert path.read_bytes() == before
    assert len(open_catalogue(path).products) == 2
    assert sorted(part.name for part in path.parent.iterdir()) == [path.name, RECORD_NAME]


def test_sources_and_places_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"does not exist .*items_shuffle_1000\.json"):
        prepare_catalogue(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(DataNotFoundError, match="holds no catalogue"):
        prepare_catalogue(tmp_path, tmp_path / "out")
    own(tmp_path / "out" / "catalogue.jsonl")
    with pytest.raises(SettingError, match="would be read instead"):
        prepare_catalogue(own(tmp_path / "mine.jsonl"), tmp_path / "out")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(SettingError, match="no product"):
        prepare_catalogue(tmp_path / "empty.jsonl", tmp_path / "fresh")
