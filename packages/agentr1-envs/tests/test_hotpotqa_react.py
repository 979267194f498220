import json
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.hotpotqa_react import read_action


@pytest.fixture
def small(tmp_path: Path) -> dict[str, Any]:
    """Two questions and a corpus of three articles."""
    rows = [
        {"id": "a", "question": "Who?", "answer": "yes", "supporting_facts": [["Deep Sea", 0], ["Ship", 1]]},
        {"id": "b", "question": "What?", "answer": "the"},
    ]
    (tmp_path / "dev.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    articles = [
        {"title": "Deep Sea", "sentences": ["One fish.", " Two fish.", " Red.", " Four.", " Five.", " Six Fish."]},
        {"title": "Ship", "sentences": ["A ship sails."]},
        {"title": "Shipyard", "text": "Ships are built."},
    ]
    (tmp_path / "corpus.jsonl").write_text("\n".join(json.dumps(article) for article in articles))
    return {"data": tmp_path, "split": "dev", "mode": "react"}


def test_react_search_and_lookup(make: Any, small: dict[str, Any]) -> None:
    env = make("agentr1/HotpotQA-v0", **small, max_steps=20)
    assert env.reset(options={"task_id": "a"})[0] == "Question: Who?"
    seen = lambda action: env.step(action)[0]  # noqa: E731
    assert seen("lookup[fish]") == "No more results."
    assert seen("search[deep  sea]") == "One fish. Two fish. Red. Four. Five."
    assert seen("lookup[fish]") == "(Result 1 / 3) One fish."
    assert seen("lookup[fish]") == "(Result 2 / 3) Two fish."
    assert seen("lookup[fish]") == "(Result 3 / 3) Six Fish."
    assert seen("lookup[fish]") == "No more results."
    assert seen("lookup[red]") == "(Result 1 / 1) Red."
    assert seen("lookup[fish]") == "(Result 1 / 3) One fish."
    assert seen("search[Ship]") == "A ship sails."
    assert seen("lookup[fish]") == "No more results."
    missing = seen("search[Shipp]")
    assert missing.startswith("Could not find Shipp. Similar: ['Ship'")
    assert seen("think[hm]") == "Nice thought."
    observation, _, _, _, info = env.step("dance[now]")
    assert observation == "Invalid action: dance[now]"
    assert (info["invalid_actions"], info["hops_found"]) == (1, 2)
    observation, reward, terminated, _, info = env.step("Thought 1: it is.\nAction 1: Finish[Yes.]")
    assert (reward, terminated, info["success"], info["prediction"]) == (1.0, True, True, "Yes.")


def test_lookup_as_a_tool_in_the_react_format(make: Any, small: dict[str, Any]) -> None:
    """The tool keeps nothing: its cursor is the episode's, and moves to the article that a search found first."""
    env = make("agentr1/HotpotQA-v0", **{**small, "mode": "tools"}, lookup=True, format="react", max_steps=20)
    env.reset(options={"task_id": "a"})
    assert [tool["function"]["name"] for tool in env.unwrapped.tool_schemas] == ["wiki_search", "wiki_lookup"]
    seen = lambda action: env.step(action)[0]  # noqa: E731
    assert "No more results." in seen("Action: wiki_lookup[fish]")
    assert "Deep Sea" in seen("Action: wiki_search[deep sea]")
    assert "(Result 1 / 3) One fish." in seen("Action: wiki_lookup[fish]")
    aside = env.unwrapped.get_state()
    assert "(Result 2 / 3) Two fish." in seen("Action: wiki_lookup[fish]")
    env.unwrapped.set_state(aside)  # the cursor goes along
    assert "(Result 2 / 3) Two fish." in seen("Action: wiki_lookup[fish]")
    assert "Ship" in seen("Action: wiki_search[ship]")
    assert "No more results." in seen("Action: wiki_lookup[fish]")
    seen("Action: wiki_search[deep sea]")
    env.reset(options={"task_id": "a"})
    assert "No more results." in seen("Action: wiki_lookup[fish]")
    _, reward, terminated, _, info = env.step("Thought: it is.\nAction: finish[yes]")
    assert (reward, terminated, info["prediction"]) == (1.0, True, "yes")


def test_react_forgets_page_and_cursor_on_reset(make: Any, small: dict[str, Any]) -> None:
    env = make("agentr1/HotpotQA-v0", **small)
    env.reset(options={"task_id": "a"})
    env.step("search[Deep Sea]")
    env.step("lookup[fish]")
    _, info = env.reset(options={"task_id": "a"})
    assert (info["hops_found"], info["prediction"]) == (0, "")
    assert env.step("lookup[fish]")[0] == "No more results."


def test_react_cuts_after_seven_steps(make: Any, small: dict[str, Any]) -> None:
    env = make("agentr1/HotpotQA-v0", **small)
    env.reset(options={"task_id": "a"})
    ends = [env.step("think[x]")[2:4] for _ in range(7)]
    assert ends == [(False, False)] * 6 + [(False, True)]


@pytest.mark.parametrize(
    ("response", "action"),
    [
        ("search[A]", ("search", "A")),
        ("  SEARCH[ A ] ", ("search", "A")),
        ("Thought: x\nAction: lookup[b c]", ("lookup", "b c")),
        ("Action 3: search[A]\nObservation 3: search[B]", ("search", "A")),
        ("I think so.\nfinish[f[x]]", ("finish", "f[x]")),
        ("finish[two\nlines]", ("finish", "two\nlines")),
        ("Action: finish[two\nlines]", ("finish", "two\nlines")),
        ("search(A)", ("", "search(A)")),
        ("search[A", ("", "search[A")),
        ("", ("", "")),
    ],
)
def test_react_reads_the_action(response: str, action: tuple[str, str]) -> None:
    assert read_action(response) == action


def test_a_gold_answer_that_normalises_to_nothing_is_a_valid_item(make: Any, small: dict[str, Any]) -> None:
    for mode in ("react", "tools"):
        env = make("agentr1/HotpotQA-v0", **{**small, "mode": mode})
        finish = "finish[{}]" if mode == "react" else "<answer>{}</answer>"
        env.reset(options={"task_id": "b"})
        assert env.step(finish.format("The"))[4]["success"] is True
        env.reset(options={"task_id": "b"})
        assert env.step(finish.format(""))[4]["success"] is False
