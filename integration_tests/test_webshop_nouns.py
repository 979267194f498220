"""spaCy finds the nouns of WebShop's titles: the real pipeline, and one made here and loaded from a folder."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium
import pytest
from agentr1_envs.errors import DependencyMissingError
from agentr1_envs.webshop.catalogue import find_catalogue, open_catalogue
from agentr1_envs.webshop.nouns import find_tagger, tagger_label, title_nouns, with_nouns
from agentr1_envs.webshop.products import Product

PRODUCT = {
    "asin": "TEA1",
    "name": "Green Tea in a Tin",
    "query": "tea",
    "instruction": "Find green tea",
    "instruction_attributes": ["fresh"],
    "attributes": ["fresh"],
}


@pytest.fixture(scope="module")
def small_set() -> Path:
    """WebShop's 1,000 products; without them the test is skipped, and fails in CI."""
    root = Path(__file__).resolve().parents[1]
    place = Path(os.environ.get("AGENTR1_SHARED", root.parent / "shared")) / "data" / "webshop"
    if not place.is_dir():
        reason = f"real data not found at {place}; set AGENTR1_SHARED to the folder that holds data/"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    return place


@pytest.fixture(scope="module")
def toy_pipeline(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A pipeline that knows one noun and one name, as spaCy keeps it in a folder."""
    import spacy

    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("attribute_ruler")
    for word, tag in (("tea", "NOUN"), ("tin", "PROPN"), ("green", "ADJ")):
        ruler.add(patterns=[[{"LOWER": word}]], attrs={"POS": tag})
    folder = tmp_path_factory.mktemp("pipeline")
    nlp.to_disk(folder)
    return str(folder)


def test_spacy_gives_the_nouns_that_the_data_holds(small_set: Path) -> None:
    products = open_catalogue(find_catalogue(small_set)).products[::8]
    assert "3.8.0" in tagger_label(find_tagger())
    found = list(with_nouns(replace(product, nouns=None) for product in products))
    assert [product.asin for product in found if product not in products] == []
    assert title_nouns(replace(products[0], nouns=None), find_tagger()) == products[0].nouns


def test_any_pipeline_can_be_named(toy_pipeline: str, tmp_path: Path) -> None:
    (tmp_path / "catalogue.jsonl").write_text(json.dumps(PRODUCT))
    env = gymnasium.make("agentr1_envs:agentr1/WebShop-v0", data=tmp_path, tagger=toy_pipeline)
    shop = env.get_wrapper_attr("shop")
    assert shop.catalogue.nouns(shop.catalogue.products[0]) == ("tea", "tin")
    env.reset(seed=0)
    assert [env.step(action) for action in env.get_wrapper_attr("demonstration")()][-1][1] == 1.0
    mixed = [Product("A1", "Tea", nouns=("own",)), Product("A2", "Green tea tea"), Product("A3", "A blue tin")]
    assert [product.nouns for product in with_nouns(mixed, toy_pipeline)] == [("own",), ("tea", "tea"), ("tin",)]


def test_a_folder_that_is_no_pipeline_is_told(tmp_path: Path) -> None:
    with pytest.raises(DependencyMissingError, match="cannot be loaded"):
        list(with_nouns([Product("A1", "Tea")], str(tmp_path)))


def test_prepare_writes_the_nouns_down(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text(json.dumps(PRODUCT))
    out = tmp_path / "out"
    command = [sys.executable, "-c", "from agentr1_envs.cli import main; main()", "prepare", "webshop"]
    done = subprocess.run(
        [*command, "--source", str(tmp_path / "mine.jsonl"), "--out", str(out)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "1 products, nouns by en_core_web_sm" in done.stdout
    assert "(no published checksum is known)" in done.stdout
    opened = open_catalogue(find_catalogue(out))
    assert (opened.tagger, opened.products[0].nouns) == ("", ("green", "tea", "tin"))
    script = "import sys, gymnasium, agentr1_envs as e; " + (
        f"gymnasium.make('agentr1/WebShop-v0', data={str(out)!r}).reset(seed=0); "
        "print([name for name in ('spacy', 'flask', 'torch', 'jnius') if name in sys.modules])"
    )
    played = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert played.stdout == "[]\n", played.stderr
