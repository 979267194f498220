import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.errors import DataMismatchError, DataNotFoundError, DataRowError, SettingError
from agentr1_envs.webshop import official
from agentr1_envs.webshop.official import (
    PAIRS,
    PUBLISHED,
    FileRecord,
    Published,
    find_official,
    official_products,
    read_official,
    verify,
)

ITEM = {
    "asin": "B1",
    "name": "Green Tea",
    "full_description": "Fresh.",
    "small_description": ["Loose leaf", "Organic"],
    "pricing": "$4.50 to $7.00",
    "category": "grocery",
    "product_category": "Grocery \u203a Tea",
    "query": " Tea ",
    "customization_options": {"Size": [{"value": " Big/Small "}, {"value": "big"}], "Color": None},
}
ABOUT = {"B1": {"attributes": ["organic"], "instruction": "Find tea", "instruction_attributes": ["organic"]}}
HUMAN = {"B1": [{"instruction": "tea please.", "instruction_attributes": ["organic"], "instruction_options": ["big"]}]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files with the benchmark's names and shapes, whose contents are this test's own."""
    monkeypatch.setattr(official, "PUBLISHED", {})
    items = [ITEM, {**ITEM, "name": "again"}, {**ITEM, "asin": "B2", "pricing": None, "small_description": "one"}]
    for name, content in (
        ("items_shuffle_1000.json", items),
        ("items_ins_v2_1000.json", ABOUT),
        ("items_human_ins.json", HUMAN),
    ):
        (tmp_path / name).write_text(json.dumps(content))
    return tmp_path


def test_files_are_joined_by_asin(folder: Path) -> None:
    path = find_official(folder)
    assert path is not None
    tea, other = read_official(path)
    assert (tea.title, tea.query, tea.pricing, tea.options) == (
        "Green Tea",
        "tea",
        (4.5, 7.0),
        {"size": ("big | small", "big")},
    )
    assert (tea.attributes, tea.instruction, tea.instruction_attributes) == (("organic",), "Find tea", ("organic",))
    assert tea.human_instructions[0].options == ("big",)
    assert (other.attributes, other.instruction, other.pricing, other.bullets) == (
        ("DUMMY_ATTR",),
        "",
        (100.0,),
        ("one",),
    )


def test_the_full_set_goes_first(folder: Path) -> None:
    (folder / "items_shuffle.json").write_text("[]")
    assert find_official(folder) == folder / "items_shuffle.json"
    assert find_official(folder / "nothing") is None


def test_what_people_wrote_is_optional_and_attributes_are_not(folder: Path) -> None:
    (folder / "items_human_ins.json").unlink()
    assert read_official(folder / "items_shuffle_1000.json")[0].human_instructions == ()
    (folder / "items_ins_v2_1000.json").unlink()
    with pytest.raises(DataNotFoundError, match=r"items_ins_v2_1000\.json is not there"):
        read_official(folder / "items_shuffle_1000.json")


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (
            {"customization_options": {"size": [{"price": 1}]}},
            DataRowError,
            "line 1, field 'customization_options'",
        ),
        ({"customization_options": [1]}, DataRowError, "customization_options"),
        ({"asin": None}, DataRowError, "field 'asin'"),
        ({"small_description": [1]}, DataRowError, "small_description"),
    ],
)
def test_bad_entries_are_named(folder: Path, change: dict[str, Any], kind: type[Exception], message: str) -> None:
    (folder / "items_shuffle_1000.json").write_text(json.dumps([{**ITEM, **change}]))
    with pytest.raises(kind, match=message):
        read_official(folder / "items_shuffle_1000.json")


def test_files_of_another_shape_are_refused(folder: Path) -> None:
    path = folder / "items_shuffle_1000.json"
    for content, message in (("{}", "needs a list of products"), ("[", "is no JSON")):
        path.write_text(content)
        with pytest.raises(SettingError, match=message):
            read_official(path)
    path.write_text("[]")
    for content, message in (("[]", "needs an object by asin"), ("{", "is no JSON")):
        (folder / "items_ins_v2_1000.json").write_text(content)
        with pytest.raises(SettingError, match=message):
            read_official(path)


def test_bad_entries_can_be_left_out(folder: Path) -> None:
    (folder / "items_shuffle_1000.json").write_text(json.dumps([{"asin": "B9", "name": 3}, 7, ITEM]))
    skipped: list[str] = []
    products = list(official_products(folder / "items_shuffle_1000.json", skipped))
    assert [product.asin for product in products] == ["B1"]
    assert [line.split(", ")[1] for line in skipped] == ["line 1", "line 2"]


def test_size_and_checksum_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "items.json"
    path.write_bytes(b"[]")
    right = hashlib.sha256(b"[]").hexdigest()
    assert verify(path, Published(2, right)) == FileRecord("items.json", 2, right, published=True)
    assert verify(path, Published(size=2)) == verify(path) == FileRecord("items.json", 2, right, published=False)
    with pytest.raises(DataMismatchError, match="2 bytes, the published file 1,000"):
        verify(path, Published(1000, right))
    with pytest.raises(DataMismatchError, match=f"sha256 {right}"):
        verify(path, Published(2, "0" * 64))


def test_a_changed_copy_of_a_known_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "items_ins_v2_1000.json").write_text("{}")
    (tmp_path / "items_shuffle_1000.json").write_text("[]")
    with pytest.raises(DataMismatchError, match="147,099"):
        read_official(tmp_path / "items_shuffle_1000.json")


def test_every_official_file_is_known() -> None:
    assert set(PUBLISHED) == {*PAIRS, *PAIRS.values(), official.HUMAN}
    for known in PUBLISHED.values():
        assert known.size
        assert known.sha256 is not None
        assert int(known.sha256, 16).bit_length() <= 256
        assert len(known.sha256) == 64
    assert len({known.sha256 for known in PUBLISHED.values()}) == len({k.drive_id for k in PUBLISHED.values()}) == 5


def test_the_published_run_is_that_of_a_file_known_here(small_set: Path) -> None:
    """What is known of the instruction file is what the real data's own notes say of it."""
    notes = (small_set / "PROVENANCE.md").read_text(encoding="utf-8")
    known = PUBLISHED["items_ins_v2_1000.json"]
    assert f"{known.size:,} bytes, sha256 {known.sha256}" in notes
