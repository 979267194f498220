"""PaperSearch played by hand on a library of eight papers, and by its expert on the real ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs import evaluate
from agentr1_envs.errors import SettingError

SUBJECTS = ("tides", "bees", "bread", "chess")


def call(name: str, argument: str) -> str:
    key = "query" if name == "paper_search" else "paper_id"
    return f'<tool_call>{{"name": "{name}", "arguments": {{"{key}": "{argument}"}}}}</tool_call>'


def search(query: str) -> str:
    return call("paper_search", query)


def expand(paper_id: str) -> str:
    return call("paper_expand", paper_id)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two papers a subject, the first of which cites all second ones; the question wants P0, P1 and P3."""
    rows = [
        {
            "id": f"P{2 * place + part}",
            "title": f"{subject} {'primer' if part == 0 else 'handbook'}",
            "abstract": " ".join([f"A text about {subject}."] + ["word"] * (500 if place == 0 else 1)),
            "year": 2015 + place,
            "references": ["P1", "P3", "P5", "P7"] if part == 0 else [],
        }
        for place, subject in enumerate(SUBJECTS)
        for part in range(2)
    ]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    question = {
        "id": "q",
        "query": "Texts about tides and bees",
        "gold": ["P0", "P1", "P3"],
        "year": 2017,
        "split": "test",
    }
    (tmp_path / "test.jsonl").write_text(json.dumps(question))
    return tmp_path


@pytest.fixture
def env(make: Any, folder: Path) -> Any:
    made = make("agentr1/PaperSearch-v0", data=folder, split="test")
    made.reset(seed=0)
    return made


def test_the_state_is_the_question_and_the_pool(env: Any) -> None:
    opening = env.reset(seed=0)[0]
    assert opening == "Question: Texts about tides and bees\n\nExpanded papers: none\n\nNew papers: none"
    state, _, _, _, info = env.step(search("tides"))
    assert state.startswith(
        "Question: Texts about tides and bees\n\nQueries so far: tides\n\nExpanded papers: none\n\n"
    )
    assert "New papers (2 of 2):\n\n[P" in state
    shown = state.partition("[P0] tides primer\n")[2].split("\n\n")[0]
    assert len(shown.split()) == 401
    assert shown.endswith(" ...")
    state = env.step(expand("P0"))[0]
    assert "Expanded papers (1 of 1):\n\n[P0]" in state
    assert info["pool_size"] == 2


def test_messages_hold_the_state_alone(make: Any, folder: Path) -> None:
    env = make("agentr1/PaperSearch-v0", data=folder, split="test", observation="messages")
    first = env.reset(seed=0)[0]
    assert [message["role"] for message in first] == ["system", "user"]
    second = env.step(search("tides"))[0]
    assert [message["role"] for message in second] == ["system", "user"]
    assert second[0] == first[0]
    assert "[P0] tides primer" in second[1]["content"]
    assert second in env.observation_space


def test_what_steps_pay(env: Any) -> None:
    """tides finds P0 and P1, both wanted; expanding P0 brings P3, which is wanted, and P5, which is not."""
    _, reward, _, _, info = env.step(search("tides"))
    assert (reward, info["reward/env"], info["new_papers"]) == (pytest.approx(2 - 0.1),) * 2 + (2,)
    _, reward, _, _, info = env.step(expand("P0"))
    assert reward == pytest.approx(1 - 0.05)
    assert (info["searches"], info["expansions"], info["faults"]) == (1, 1, 0)
    assert env.step(expand("P0"))[1] == pytest.approx(-0.5)
    assert env.step(search(" TIDES "))[1] == pytest.approx(-0.5)
    state, reward, _, _, info = env.step(expand("P4") + expand("nobody") + search("bread"))
    assert reward == pytest.approx(-0.5 - 0.5 - 0.1)
    assert info["faults"] == 4
    assert "There is no paper [P4] among those found." in state
    assert "There is no paper [nobody] among those found." in state


def test_calls_of_one_response_count_in_their_order(env: Any) -> None:
    _, reward, _, _, info = env.step(search("tides") + search("tides") + expand("P0"))
    assert reward == pytest.approx(3 - 0.1 - 0.5 - 0.05)
    assert (info["searches"], info["expansions"], info["faults"], info["new_papers"]) == (1, 1, 1, 4)
    env.reset(seed=0)
    assert env.step(expand("P0") + search("tides"))[1] == pytest.approx(2 - 0.5 - 0.1)


def test_papers_after_the_questions_date_are_never_found(env: Any) -> None:
    *_, info = env.step(search("chess"))
    assert (info["pool_size"], info["tool_errors"]) == (0, 0)
    assert env.step(search("tides"))[4]["new_papers"] == 2
    assert "[P7]" not in env.step(expand("P0"))[0]


def test_the_relevance_scorer_decides_what_is_dropped_and_returned(make: Any, folder: Path) -> None:
    scores = {"P0": 0.9, "P1": 0.4, "P2": 0.5, "P3": 0.005}
    asked = []

    def scorer(question: str, papers: Any) -> list[float]:
        asked.append(question)
        return [scores.get(paper.id, 0.2) for paper in papers]

    for reward_scorer, reward in (("gold", 2 - 0.1), ("relevance", 3 - 0.1)):
        env = make("agentr1/PaperSearch-v0", data=folder, split="test", scorer=scorer, reward_scorer=reward_scorer)
        env.reset(seed=0)
        state, paid, _, _, info = env.step(search("tides bees"))
        assert paid == pytest.approx(reward)
        assert "[P3]" not in state
        assert state.index("[P0]") < state.index("[P2]") < state.index("[P1]")
        assert info["result"] == ("P0", "P2")
        assert (info["precision"], info["recall"]) == (1 / 2, 1 / 3)
        assert info["f1"] == pytest.approx(2 / 5)
        assert info["recall@20"] == info["recall@100"] == pytest.approx(1 / 3)
    assert set(asked) == {"Texts about tides and bees"}


def test_labels_change_no_observation(make: Any, folder: Path) -> None:
    actions = [search("tides"), expand("P0"), search("bees"), "<answer>done</answer>"]

    def seen() -> list[Any]:
        env = make("agentr1/PaperSearch-v0", data=folder, split="test")
        start = env.reset(seed=0)
        return [start[0], env.system_prompt, env.tool_schemas, *(env.step(action)[0] for action in actions)]

    before = seen()
    question = json.loads((folder / "test.jsonl").read_text())
    (folder / "test.jsonl").write_text(json.dumps({**question, "gold": ["P5"]}))
    assert seen() == before


def test_the_answer_ends(env: Any) -> None:
    env.step(search("tides"))
    env.step(search("bees"))
    _, reward, terminated, truncated, info = env.step("<answer>done</answer>")
    assert (reward, terminated, truncated, info["end_reason"]) == (0.0, True, False, "answer")
    assert (info["success"], info["recall"], info["new_papers"]) == (True, 1.0, 0)
    assert info["precision"] == 3 / len(info["result"])


def test_three_steps_without_a_new_paper_end(env: Any) -> None:
    env.step(search("tides"))
    assert not env.step(search("tides"))[2]
    assert not env.step(search("quantum"))[2]
    _, _, terminated, truncated, info = env.step(expand("P9"))
    assert (terminated, truncated, info["end_reason"], info["success"]) == (True, False, "no_new_papers", False)


def test_a_new_paper_starts_the_count_anew(env: Any) -> None:
    for action in (search("quantum"), search("nothing"), search("tides"), search("none")):
        assert not env.step(action)[2]


def test_five_steps_are_the_limit(env: Any) -> None:
    for number, query in enumerate(("quantum", "nothing", "tides", "none", "bees")):
        _, _, terminated, truncated, info = env.step(search(query))
        assert (terminated, truncated) == (False, number == 4)
    assert (info["end_reason"], info["success"], info["recall"]) == ("max_steps", False, 1.0)


def test_five_calls_a_step_are_run(env: Any) -> None:
    state, _, _, _, info = env.step("".join(search(f"tides {n}") for n in range(6)))
    assert info["searches"] == 5
    assert "CALL_LIMIT" in state
    env.reset(seed=0)
    state, _, _, _, info = env.step('<tool_call>{"name": "paper_serch", "arguments": {"query": "tides"}}</tool_call>')
    assert (info["invalid_calls"], info["faults"]) == (1, 0)
    assert "paper_search" in state.split("Expanded papers")[0]


def test_a_dense_library(make: Any, folder: Path) -> None:
    def encoder(texts: list[str]) -> list[list[float]]:
        return [[float(text.lower().count(subject)) for subject in SUBJECTS] + [0.01] for text in texts]

    env = make("agentr1/PaperSearch-v0", data=folder, split="test", retrieval="dense", encoder=encoder)
    env.reset(seed=0)
    assert env.step(search("bees!"))[4]["result"][:2] == ("P2", "P3")
    env = make("agentr1/PaperSearch-v0", data=folder, split="test", scorer="embedding", encoder=encoder)
    env.reset(seed=0)
    assert set(env.step(search("tides bees bread"))[4]["result"]) == {"P0", "P1", "P2", "P3"}


def test_settings_act_or_are_refused(make: Any) -> None:
    for kwargs, message in (
        ({"retrieval": "dense"}, "needs encoder="),
        ({"encoder": "math:sqrt"}, "no effect"),
        ({"encoder": "nonsense"}, "module:function"),
        ({"scorer": "gold"}, "'retrieval', 'embedding'"),
        ({"reward_scorer": "bm25"}, "'gold', 'relevance'"),
        ({"progressive": "levels"}, "there is no setting 'progressive'"),
        ({"history": 2}, "there is no setting 'history'"),
        ({"patiense": 2}, "Did you mean 'patience'"),
        ({"patience": 0}, "patience=0"),
        ({"split": "dev"}, "'train', 'test'"),
        ({"kind": "SPARBench"}, "there are"),
    ):
        with pytest.raises(SettingError, match=message):
            make("agentr1/PaperSearch-v0", **kwargs).reset(seed=0)


def test_metrics_are_macro_averages(make: Any) -> None:
    env = make("agentr1/PaperSearch-v0", split="test")
    rows = []
    for task_id in env.task_ids:
        env.reset(options={"task_id": task_id})
        rows.append(env.step(search(env.task.question))[4])

    def one_search(state: str) -> str:
        question = state.removeprefix("Question: ").split("\n")[0]
        return "<answer>done</answer>" if "Queries so far" in state else search(question)

    result = evaluate("agentr1/PaperSearch-v0", one_search, len(rows), split="test")
    for name in ("precision", "recall", "f1", "recall@20"):
        assert result.metrics[name] == pytest.approx(sum(row[name] for row in rows) / len(rows))
    assert 0.1 < result.metrics["recall"] < 0.9


# Real data


def test_real_questions_over_9293_papers(make: Any, expert: Any, shared_data: Path) -> None:
    env = make("agentr1/PaperSearch-v0", data=shared_data / "papers", split="test", kind="SPARBench")
    assert len(env.task_ids) == 50
    recall = [expert(env, task_id)[-1][4]["recall"] for task_id in env.task_ids[:25]]
    assert sum(recall) / len(recall) > 0.85
    tutorials = make(
        "agentr1/PaperSearch-v0", data=shared_data / "papers", split="test", kind="ACL tutorial reading lists"
    )
    tutorials.reset(options={"task_id": "tut-2020.acl-tutorials.1"})
    state = tutorials.step(search("Interpretability and Analysis in Neural NLP"))[0]
    assert "[186]" not in state
    assert "no paper [186]" in tutorials.step(expand("186"))[0]


def test_ten_papers_a_search_thirty_references_an_expansion(make: Any, shared_data: Path, tmp_path: Path) -> None:
    env = make("agentr1/PaperSearch-v0", data=shared_data / "papers", split="test", kind="SPARBench", drop_below=0.0)
    env.reset(seed=0)
    assert env.step(search("language model"))[4]["new_papers"] == 10
    cited = [f"C{number}" for number in range(40)]
    rows = [{"id": "S", "title": "Survey of tides", "abstract": "", "references": cited}]
    rows += [
        {"id": name, "title": f"Tides {'abcdefghij'[n // 10] + 'abcdefghij'[n % 10]}"} for n, name in enumerate(cited)
    ]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "test.jsonl").write_text(json.dumps({"query": "Tides?", "gold": ["C0"]}))
    env = make("agentr1/PaperSearch-v0", data=tmp_path, split="test", shown_new=40)
    env.reset(seed=0)
    assert env.step(search("survey"))[4]["pool_size"] == 1
    state, *_, info = env.step(expand("S"))
    assert (info["new_papers"], "[C29]" in state, "[C30]" in state) == (30, True, False)


def test_real_citations_are_followed(make: Any, shared_data: Path) -> None:
    env = make("agentr1/PaperSearch-v0", data=shared_data / "acl_citegraph", split="test", kind="reference list")
    assert len(env.task_ids) == 256
    found = hidden = 0
    for task_id in env.task_ids[:20]:
        env.reset(options={"task_id": task_id})
        title = env.task.question.split('"')[1]
        *_, info = env.step(search(title))
        before = info["pool_size"]
        hidden += env.task.hidden[0] in info["result"]
        *_, info = env.step("".join(expand(paper_id) for paper_id in info["result"][:5]))
        found += info["pool_size"] > before
    assert hidden == 0
    assert found >= 15
