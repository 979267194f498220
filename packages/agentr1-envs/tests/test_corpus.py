import json
from pathlib import Path

import pytest
from agentr1_envs.corpus import open_corpus
from agentr1_envs.errors import DataNotFoundError, DataRowError


def test_the_real_corpus_opens_once(shared_data: Path) -> None:
    corpus = open_corpus(shared_data / "hotpotqa" / "corpus.jsonl")
    assert open_corpus(str(shared_data / "hotpotqa" / ".." / "hotpotqa" / "corpus.jsonl")) is corpus
    assert 18_000 < len(corpus) <= 18_898
    passage = corpus.find("$1,000 A TOUCHDOWN")
    assert passage is not None
    assert (
        passage.sentences[1]
        == " The film stars Joe E. Brown, Martha Raye, Eric Blore, Susan Hayward, John Hartley and Joyce Mathews."
    )
    assert passage.text.startswith("$1,000 a Touchdown is a 1939 American comedy film")
    assert "  " not in passage.text
    assert corpus.similar("1000 a Touchdown")[0] == "$1,000 a Touchdown"
    assert len(corpus.similar("Lazy River")) == 5


def test_what_is_no_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"agentr1-envs prepare hotpotqa"):
        open_corpus(tmp_path / "none.jsonl")
    for number, line in enumerate(("{", json.dumps({"title": "x"}), json.dumps({"text": "x"}))):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(json.dumps({"title": "ok", "text": "fine"}) + "\n" + line)
        with pytest.raises(DataRowError, match="line 2"):
            open_corpus(path)
