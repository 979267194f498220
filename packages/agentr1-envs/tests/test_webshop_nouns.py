from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from agentr1_envs.errors import DependencyMissingError
from agentr1_envs.webshop import nouns
from agentr1_envs.webshop.nouns import check_nouns, title_nouns
from agentr1_envs.webshop.products import Product

WITH = Product("A1", "Green Tea", nouns=("tea",))
WITHOUT = Product("A2", "Green Tea Cup")


def test_nouns_of_the_row_need_nothing() -> None:
    assert title_nouns(WITH) == ("tea",)
    check_nouns([WITH])


def test_without_spacy_the_install_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nouns, "find_spec", lambda name: None)
    with pytest.raises(DependencyMissingError, match=r'pip install "agentr1-envs\[webshop\]" && python -m spacy'):
        check_nouns([WITH, WITHOUT])


def test_without_the_model_the_install_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nouns, "find_spec", lambda name: None if name == nouns.MODEL else object())
    with pytest.raises(DependencyMissingError, match=r"en_core_web_sm is not installed.*spacy download en_core_web_sm"):
        check_nouns([WITHOUT])


def test_nouns_and_names_are_taken_from_the_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {"Green": "ADJ", "Tea": "NOUN", "Cup": "PROPN"}

    def load() -> Callable[[str], Any]:
        return lambda title: [SimpleNamespace(text=word, pos_=tags[word]) for word in title.split()]

    monkeypatch.setattr(nouns, "_tagger", load)
    nouns._tagged_nouns.cache_clear()
    assert title_nouns(WITHOUT) == ("tea", "cup")
    nouns._tagged_nouns.cache_clear()


def test_spacy_gives_the_nouns_that_the_data_holds(small_set: Any) -> None:
    pytest.importorskip("spacy", reason="spaCy is an optional extra")
    pytest.importorskip(nouns.MODEL, reason="the model is installed by spaCy's own command")
    from agentr1_envs.webshop.catalogue import find_catalogue, open_catalogue

    products = open_catalogue(find_catalogue(small_set)).products[:20]
    found = [nouns._tagged_nouns(product.title) for product in products]
    assert (
        sum(a == b.nouns for a, b in zip(found, products, strict=True)) >= 18
    )  # other versions tag a little otherwise
