import json
import time

import pytest
from agentr1_tools.errors import ToolConfigError
from agentr1_tools.wiki_index import Passage, WikiIndex, read_passages

PASSAGES = [
    Passage(
        0, "Ada Lovelace", ("Ada Lovelace was an English mathematician.", "She wrote about the Analytical Engine.")
    ),
    Passage(1, "Charles Babbage", ("Charles Babbage designed the Analytical Engine.", "He knew Ada Lovelace well.")),
    Passage(2, "Ada, Ohio", ("Ada is a village in Ohio.",)),
    Passage(3, "Zürich", ("Zürich ist eine Stadt.",)),
    Passage(4, "Twin", ("Same words here.",)),
    Passage(5, "Twin", ("Same words here.",)),
]


@pytest.fixture(scope="module")
def index():
    return WikiIndex(PASSAGES)


def write(path, rows):
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_the_best_passage_comes_first(index):
    assert [hit.passage.title for hit in index.search("ada lovelace")][:2] == ["Ada Lovelace", "Charles Babbage"]
    assert index.search("ZÜRICH")[0].passage.title == "Zürich"


def test_a_title_counts_more_than_a_mention(index):
    assert [hit.passage.id for hit in index.search("babbage")] == [1]
    ohio = index.search("Ada, Ohio")
    assert ohio[0].passage.id == 2


def test_scores_fall_and_ties_go_by_corpus_order(index):
    hits = index.search("same words analytical", 6)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    twins = [hit.passage.id for hit in hits if hit.passage.title == "Twin"]
    assert twins == [4, 5]
    assert [hit.passage.id for hit in index.search("same words", 1)] == [4]


def test_only_passages_with_a_word_of_the_query_are_found(index):
    assert index.search("quantum chromodynamics") == []
    assert index.search("") == []
    assert index.search("?!") == []
    assert index.search("ada", 0) == []
    assert len(index.search("ada", 100)) == 3


def test_look_up_by_title(index):
    assert index.by_title("ada  LOVELACE").id == 0
    assert index.by_title("Ada_Lovelace").id == 0
    assert index.by_title("Twin").id == 4
    assert index.by_title("Nobody") is None
    assert index.similar_titles("Ada Lovelase", 1) == ["Ada Lovelace"]
    assert index.similar_titles("twin", 9).count("Twin") == 1


def test_a_file_is_opened_once_and_shared(tmp_path):
    path = write(
        tmp_path / "corpus.jsonl",
        [{"title": "A", "text": "One. Two! Three?"}, "", {"id": "b", "title": "B", "sentences": [" x ", ""]}],
    )
    index = WikiIndex.load(path)
    assert WikiIndex.load(str(path)) is index
    assert index.passages[0].sentences == ("One.", "Two!", "Three?")
    assert [passage.id for passage in index.passages] == [0, "b"]
    assert index.passages[1].sentences == ("x",)
    assert index.search("two")[0].passage.title == "A"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "line 2: not JSON"),
        ([1], "line 2: not an object"),
        ({"title": "", "text": "x"}, "line 2: 'title' is ''"),
        ({"text": "x"}, "line 2: 'title' is None"),
        ({"title": "x"}, "line 2: needs 'sentences'"),
        ({"title": "x", "sentences": [1]}, "line 2: needs 'sentences'"),
        ({"title": "x", "text": "y", "id": [1]}, "line 2: 'id' is"),
    ],
)
def test_a_bad_row_is_named_by_line_and_field(tmp_path, row, message):
    path = write(tmp_path / "corpus.jsonl", [{"title": "A", "text": "a"}, row])
    with pytest.raises(ToolConfigError, match=message):
        read_passages(path)


def test_contents_are_a_title_and_a_text(tmp_path):
    rows = [
        {"id": "a", "contents": '"Oslo"\nA city.\nA fjord.'},
        {"id": "b", "contents": 'Bare "title"\nText.'},
        {"id": "c", "contents": "One line"},
        {"id": "d", "contents": "Ignored\nwith a title", "title": "T", "text": "t"},
    ]
    passages = read_passages(write(tmp_path / "corpus.jsonl", rows))
    assert [(passage.id, passage.title, passage.text) for passage in passages] == [
        ("a", "Oslo", "A city. A fjord."),
        ("b", 'Bare "title"', "Text."),
        ("c", "One line", "One line"),
        ("d", "T", "t"),
    ]


def test_a_folder_is_read_by_its_corpus_file(tmp_path):
    write(tmp_path / "corpus.jsonl", [{"title": "A", "text": "a"}])
    write(tmp_path / "questions.jsonl", [{"question": "?"}])
    assert [passage.title for passage in read_passages(tmp_path)] == ["A"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no corpus at .*empty/corpus.jsonl"):
        read_passages(tmp_path / "empty")


def test_a_missing_or_empty_file_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no corpus at .*nowhere.jsonl; give a jsonl file"):
        WikiIndex.load(tmp_path / "nowhere.jsonl")
    with pytest.raises(ToolConfigError, match="no passage"):
        WikiIndex.load(write(tmp_path / "empty.jsonl", []))


def test_passages_without_any_word_are_legal():
    index = WikiIndex([Passage(0, "?!", ()), Passage(1, "word", ())])
    assert [hit.passage.id for hit in index.search("word")] == [1]


def test_the_real_corpus_answers_within_five_milliseconds(hotpotqa_corpus):
    index = WikiIndex.load(hotpotqa_corpus)
    assert len(index.passages) == 18_898
    queries = [f"{passage.title} {' '.join(passage.text.split()[:12])}" for passage in index.passages[::100]]
    seconds = []
    for position, query in enumerate(queries):
        started = time.perf_counter()
        hits = index.search(query, 5)
        seconds.append(time.perf_counter() - started)
        assert index.passages[position * 100] in [hit.passage for hit in hits]
    assert sorted(seconds)[len(seconds) // 2] < 0.005
    assert index.by_title("johns hopkins university").title == "Johns Hopkins University"
    assert index.similar_titles("Jon Hopkins Univercity", 1) == ["Johns Hopkins University"]
