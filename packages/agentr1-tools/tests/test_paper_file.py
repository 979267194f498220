import json

import pytest
from agentr1_tools.errors import ToolConfigError
from agentr1_tools.paper_file import Paper, digits_of_date, is_later, letters, read_papers


def corpus(folder, *rows, edges=None):
    path = folder / "corpus.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    if edges is not None:
        (folder / "edges.tsv").write_text(edges)
    return path


def test_rows_and_edges_become_papers(tmp_path):
    path = corpus(
        tmp_path,
        {"id": 0, "title": " One ", "abstract": "a", "year": 2019, "references": [1, "1", 7]},
        "",
        {"id": 1, "title": "Two", "abstract": None, "date": "2020-05-01", "year": 2021},
        {"id": "P2", "title": "Three", "year": "2018"},
        edges="0\tP2\n0\t1\n\nP2\t0\n",
    )
    assert read_papers(path) == [
        Paper("0", "One", "a", "2019", ("1", "7", "P2")),
        Paper("1", "Two", "", "20200501"),
        Paper("P2", "Three", "", "2018", ("0",)),
    ]


def test_titles_are_compared_by_their_letters():
    assert (
        letters("BERT: Pre-training, 2nd Edition!")
        == letters("bert pretraining nd edition")
        == "bertpretrainingndedition"
    )
    assert letters("2001") == "2001"


@pytest.mark.parametrize(
    ("date", "limit", "later"),
    [
        ("2019", "2018", True),
        ("2018", "2018", False),
        ("2018", "201805", False),
        ("201806", "201805", True),
        ("20180531", "201805", False),
        ("20180602", "20180601", True),
        ("", "2018", False),
        ("2018", "", False),
    ],
)
def test_a_date_is_later_as_far_as_both_are_known(date, limit, later):
    assert is_later(date, limit) is later
    assert digits_of_date("2018-06-02T10:00:00") == "20180602"
    assert (digits_of_date(2018), digits_of_date(None)) == ("2018", "")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "line 2: not an object"),
        ({"title": "x"}, "line 2: 'id' is None"),
        ({"id": True, "title": "x"}, "line 2: 'id' is True"),
        ({"id": 1, "title": " "}, "line 2: 'title' is ' '"),
        ({"id": 1, "title": "x", "abstract": 3}, "line 2: 'abstract' is 3"),
        ({"id": 1, "title": "x", "references": "P2"}, "line 2: 'references' is 'P2'"),
        ({"id": 0, "title": "x"}, "line 2: the id '0' stands on an earlier line"),
    ],
)
def test_a_bad_row_is_named(tmp_path, row, problem):
    with pytest.raises(ToolConfigError, match=problem):
        read_papers(corpus(tmp_path, {"id": 0, "title": "fine"}, row))


def test_a_bad_edge_and_a_missing_file_are_named(tmp_path):
    path = corpus(tmp_path, {"id": 0, "title": "fine"}, edges="0\t9\n")
    with pytest.raises(ToolConfigError, match=r"edges\.tsv, line 1: '9' is no id"):
        read_papers(path)
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        read_papers(tmp_path / "none.jsonl")
