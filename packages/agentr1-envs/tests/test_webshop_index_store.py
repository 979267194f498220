from pathlib import Path

import numpy as np
import pytest
from agentr1_envs.webshop.index_store import cache_folder, load_index, save_index, stored_index
from agentr1_envs.webshop.search_index import SearchIndex, build_index

TEXTS = ["red shoe", "blue shoe shoe", "caf\u00e9 \u2714"]


def test_an_index_is_the_same_after_it_was_kept(tmp_path: Path) -> None:
    index = build_index(TEXTS)
    save_index(index, tmp_path / "kept")
    loaded = load_index(tmp_path / "kept")
    assert isinstance(loaded.documents, np.memmap)
    for query in ("shoe", "red shoe", "\u2714", "nothing"):
        assert loaded.search(query, 5) == index.search(query, 5)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_it_is_built_once_and_again_when_damaged(tmp_path: Path) -> None:
    built: list[int] = []

    def build() -> SearchIndex:
        built.append(1)
        return build_index(TEXTS)

    for _ in range(2):
        assert stored_index("shop", build, tmp_path).search("red", 5)[0] == [0]
    assert len(built) == 1
    (place,) = tmp_path.iterdir()
    (place / "vocabulary.txt").write_text("red")
    assert stored_index("shop", build, tmp_path).search("red", 5)[0] == [0]
    (place / "documents.npy").write_bytes(b"nonsense")
    assert stored_index("shop", build, tmp_path).search("red", 5)[0] == [0]
    assert len(built) == 3


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert stored_index("shop", lambda: build_index(TEXTS), tmp_path / "file").search("red", 5)[0] == [0]


def test_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "agentr1" / "webshop"
