import json
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.datasets import HOTPOTQA
from agentr1_envs.errors import DataRowError, SettingError
from agentr1_envs.hotpotqa_data import react_indices, read_hotpotqa
from agentr1_envs.loader import load_tasks
from agentr1_envs.multihop_report import hotpot_report, musique_report, twowiki_report
from agentr1_envs.prepare import find_sources, prepare
from agentr1_envs.rows import Row


def lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_the_shapes_of_hotpotqa(tmp_path: Path) -> None:
    facts, context = [["T", 0], ["U", 1]], [["T", ["One."]], ["U", ["Two.", " Three."]]]
    official = {"_id": "x", "question": "q", "answer": "a", "supporting_facts": facts, "context": context}
    columns = {
        "id": "x",
        "question": "q",
        "answer": "a",
        "supporting_facts": {"title": ["T", "U"], "sent_id": [0, 1]},
        "context": {"title": ["T", "U"], "sentences": [["One."], ["Two.", " Three."]]},
    }
    tasks = [
        load_tasks(HOTPOTQA, "dev", lines(tmp_path / f"{number}.jsonl", shape))[0]
        for number, shape in enumerate((official, columns))
    ]
    assert tasks[0] == tasks[1]
    assert tasks[0].supporting_titles == ("T", "U")
    assert tasks[0].context[1].text == "Two. Three."
    for field, value in (
        ("supporting_facts", [["T"]]),
        ("supporting_facts", [["T", "0"]]),
        ("context", [["T", "no list"]]),
        ("answer", ""),
        ("context_titles", "T"),
    ):
        with pytest.raises(DataRowError, match=f"line 1, field '{field}'"):
            load_tasks(HOTPOTQA, "dev", lines(tmp_path / "bad.jsonl", {**official, field: value}))


def test_react_indices_follow_the_rule() -> None:
    indices = react_indices()
    assert len(set(indices)) == 500
    assert indices[:5] == [3687, 6238, 5388, 3522, 3824]


# 2WikiMultihopQA, MuSiQue and Bamboogle through agentr1/HotpotQA-v0, on their real files


def search(query: str) -> str:
    quoted = query.replace('"', '\\"')
    return f'<tool_call>{{"name": "wiki_search", "arguments": {{"query": "{quoted}"}}}}</tool_call>'


def test_2wiki_in_all_modes(make: Any, expert: Any, shared_data: Path) -> None:
    place = shared_data / "2wikimultihopqa"
    tools = make("agentr1/HotpotQA-v0", data=place, split="dev", max_results=10, max_steps=10)
    assert len(tools.task_ids) == 500
    hops = wanted = 0
    for task_id in tools.task_ids[:60]:
        info = expert(tools, task_id)[-1][4]
        assert (info["success"], info["em"], info["f1"]) == (True, 1.0, 1.0), task_id
        hops, wanted = hops + info["hops_found"], wanted + len(tools.task.supporting_titles)
    assert hops / wanted > 0.9
    react = make("agentr1/HotpotQA-v0", data=place, split="dev", mode="react", max_steps=10)
    for task_id in react.task_ids[:60]:
        info = expert(react, task_id)[-1][4]
        assert (info["success"], info["hops_found"]) == (True, len(react.task.supporting_titles)), task_id
    context = make("agentr1/HotpotQA-v0", data=place, split="dev", mode="context")
    assert context.reset(seed=0)[0].count("\n\n") == 10


def test_gold_scores_one_by_the_official_evaluations(shared_data: Path) -> None:
    wiki = load_tasks(HOTPOTQA, "dev", shared_data / "2wikimultihopqa").tasks
    answers = {task.task_id: task.answers[0] for task in wiki}
    support = {task.task_id: task.supporting for task in wiki}
    evidences = {task.task_id: task.evidences for task in wiki}
    assert all(task.evidences for task in wiki)
    assert set(twowiki_report(wiki, answers, support, evidences).values()) == {1.0}
    hotpot = load_tasks(HOTPOTQA, "dev", shared_data / "hotpotqa").tasks
    answers = {task.task_id: task.answers[0] for task in hotpot}
    report = hotpot_report(hotpot, answers, {task.task_id: task.supporting for task in hotpot})
    assert report["sp_em"] == report["sp_f1"] == 1.0
    assert report["em"] == 1.0
    musique = load_tasks(HOTPOTQA, "train", shared_data / "musique").tasks
    aliases = {task.task_id: task.answers[-1] for task in musique}
    places = {task.task_id: [place for _, place in task.supporting] for task in musique}
    assert musique_report(musique, aliases, places) == {"answer_em": 1.0, "answer_f1": 1.0, "support_f1": 1.0}


def test_musique_brings_its_paragraphs(make: Any, expert: Any, shared_data: Path, tmp_path: Path) -> None:
    place = shared_data / "musique"
    context = make("agentr1/HotpotQA-v0", data=place, split="train", mode="context")
    assert len(context.task_ids) == 100
    observation, _ = context.reset(options={"task_id": "2hop__150763_14904"})
    assert observation.count("\n\n") == 20
    assert context.task.answers == ("G. Stanley Hall", "Stanley Hall")
    assert [at for _, at in context.task.supporting] == [6, 10]
    assert context.step("<answer>Stanley Hall</answer>")[4]["em"] == 1.0

    written, passages = prepare(HOTPOTQA, find_sources(HOTPOTQA, place, None), tmp_path)
    assert [(part.split, part.tasks) for part in written] == [("train", 100)]
    paragraphs = {(passage.title, passage.text) for task in context.tasks for passage in task.context}
    assert passages == len(paragraphs)
    prepared = make("agentr1/HotpotQA-v0", data=tmp_path, split="train", max_results=10)
    assert prepared.tasks.tasks == context.tasks.tasks
    hops = wanted = 0
    for task_id in prepared.task_ids[:40]:
        info = expert(prepared, task_id)[-1][4]
        assert info["success"], task_id
        hops, wanted = hops + info["hops_found"], wanted + len(prepared.task.supporting_titles)
    assert hops / wanted > 0.9


def test_bamboogle_is_asked_over_another_corpus(make: Any, shared_data: Path) -> None:
    corpus = shared_data / "hotpotqa" / "corpus.jsonl"
    env = make("agentr1/HotpotQA-v0", data=shared_data / "bamboogle", split="test", corpus=corpus)
    assert len(env.task_ids) == 125
    env.reset(options={"task_id": "bamboogle-0"})
    observation, _, _, _, info = env.step(search("Citibank"))
    assert "<tool_response>" in observation
    assert info["hops_found"] == 0  # the data names no supporting articles
    _, reward, _, _, info = env.step("<answer>James Madison</answer>")
    assert (reward, info["success"], info["em"]) == (1.0, True, 1.0)


def test_only_data_of_ones_own_has_a_test_split(make: Any) -> None:
    with pytest.raises(SettingError, match="bundled questions='test' is not known; legal: 'train', 'dev'"):
        make("agentr1/HotpotQA-v0", split="test")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"answerable": False}, "answerable"),
        ({"paragraphs": [{"title": "T"}]}, "paragraph_text"),
        ({"paragraphs": ["text"]}, "title"),
        ({"evidences": [["a", "b"]]}, "evidences"),
    ],
)
def test_bad_rows_of_the_kin_are_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(DataRowError, match=f"line 3, field '{field}'"):
        read_hotpotqa(Row(Path("x.jsonl"), 3, {"question": "q", "answer": "a", **fields}), "dev")
