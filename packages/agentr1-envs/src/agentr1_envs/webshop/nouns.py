"""The nouns of a product's title: those its row brings, or spaCy's, found when first asked for. One door to spaCy."""

from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from agentr1_envs.errors import DependencyMissingError
from agentr1_envs.webshop.products import Product

MODEL = "en_core_web_sm"
INSTALL = f'pip install "agentr1-envs[webshop]" && python -m spacy download {MODEL}'

_TAGS = ("PNOUN", "NOUN", "PROPN")
_LACKING = "Some products come without 'title_nouns', which the reward compares, so spaCy has to find them"


def title_nouns(product: Product) -> tuple[str, ...]:
    """Lower-case nouns of the title, in order, with repeats.

    Raises:
        DependencyMissingError: the row brings none, and spaCy or its model is not installed.
    """
    return _tagged_nouns(product.title) if product.nouns is None else product.nouns


def check_nouns(products: Iterable[Product]) -> None:
    """See that the nouns of every product can be told, before an episode needs them.

    Raises:
        DependencyMissingError: spaCy or its model is needed and not installed.
    """
    if all(product.nouns is not None for product in products):
        return
    for name in ("spacy", MODEL):
        if find_spec(name) is None:
            raise DependencyMissingError(f"{_LACKING}, but {name} is not installed: {INSTALL}")


@lru_cache(maxsize=1 << 16)
def _tagged_nouns(title: str) -> tuple[str, ...]:
    return tuple(token.text.lower() for token in _tagger()(title) if token.pos_ in _TAGS)


@lru_cache(maxsize=1)
def _tagger() -> Any:
    try:
        return import_module("spacy").load(MODEL, exclude=["parser", "ner"])
    except (ImportError, OSError) as error:
        raise DependencyMissingError(f"{_LACKING}, which failed ({error}): {INSTALL}") from error
