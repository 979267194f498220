import json
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.webshop import json_array
from agentr1_envs.webshop.json_array import array_elements

VALUES: list[Any] = [
    {"a": 'x] , [{\\"'},
    [],
    {},
    12345,
    1.5,
    2e5,
    "caf\u00e9 \U0001f375",
    None,
    {"b": [1.5, {"c": True}]},
    -7,
]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 1 << 20])
@pytest.mark.parametrize("indent", [None, 3])
def test_elements_come_whole_wherever_a_chunk_ends(tmp_path: Path, chunk: int, indent: int | None) -> None:
    path = tmp_path / "items.json"
    path.write_text(f" {json.dumps(VALUES, indent=indent, ensure_ascii=False)}\n", encoding="utf-8")
    assert list(array_elements(path, chunk)) == VALUES
    path.write_text("[ ]")
    assert list(array_elements(path, chunk)) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("{}", "needs a list"),
        ("[", "is no JSON"),
        ("[1", "cut short"),
        ("[1 2]", "'2' stands behind an element"),
        ("[1,]", "is no JSON"),
        ('[{"a": }]', "is no JSON"),
        ("[1] x", "'x' stands behind the list"),
    ],
)
def test_what_is_no_array_is_told(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "items.json"
    path.write_text(content)
    with pytest.raises(SettingError, match=message):
        list(array_elements(path, 3))


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    path = tmp_path / "items.json"
    path.write_bytes(b'["\xff"]')
    with pytest.raises(SettingError, match="utf-8"):
        list(array_elements(path))


def test_a_fault_does_not_read_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "items.json"
    path.write_text("[1, {]" + " " * 1000)
    monkeypatch.setattr(json_array, "LONGEST_ELEMENT", 100)
    read: list[int] = []
    more = json_array._Reader._more

    def counted(reader: Any) -> bool:
        read.append(1)
        return more(reader)

    monkeypatch.setattr(json_array._Reader, "_more", counted)
    with pytest.raises(SettingError, match="is no JSON"):
        list(array_elements(path, 10))
    assert len(read) < 20
