import json
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.errors import DataNotFoundError, DataRowError, SettingError


@pytest.mark.parametrize(
    ("scorer", "said", "reward"),
    [("em", "The Two", 1.0), ("em", "two of", 0.0), ("f1", "two of", pytest.approx(2 / 3)), ("em", "2", 0.0)],
)
def test_text_scorers(make: Any, scorer: str, said: str, reward: float) -> None:
    env = make("agentr1/ToolEnv-v0", tasks=[{"question": "1+1?", "answer": "two"}], scorer=scorer)
    env.reset(seed=0)
    assert env.step(f"<answer>{said}</answer>")[1] == reward


def test_the_number_scorer(make: Any) -> None:
    env = make("agentr1/ToolEnv-v0", tasks=[{"question": "1+1?", "answer": "2", "plan": ["1+1"]}], scorer="number")
    env.reset(seed=0)
    assert env.demonstration()[0].count("1+1") == 1
    _, reward, _, _, info = env.step("<answer>$2.00</answer>")
    assert (reward, info["success"], info["gsm8k_official"], info["em"]) == (1.0, True, 0.0, 0.0)


def test_tools_and_questions_of_ones_own(make: Any, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"id": 0, "title": "Ada", "sentences": ["Ada wrote programs."]}))
    questions = tmp_path / "questions.json"
    questions.write_text(json.dumps([{"question": "Who wrote programs?", "answer": "Ada", "plan": ["programs"]}]))
    env = make(
        "agentr1/ToolEnv-v0", tools=[{"name": "wiki_search", "corpus": str(corpus)}, "calculator"], tasks=questions
    )
    assert [schema["function"]["name"] for schema in env.tool_schemas] == ["wiki_search", "calculator"]
    env.reset(seed=0)
    first, last = env.demonstration()
    assert "Ada wrote programs." in env.step(first)[0]
    assert env.step(last)[4]["success"]


def test_wrong_arguments_are_refused(make: Any, tmp_path: Path) -> None:
    for kwargs, kind, message in (
        ({"scorer": "exact"}, SettingError, "'em', 'f1', 'number'"),
        ({"tasks": tmp_path / "none.jsonl"}, DataNotFoundError, "none.jsonl"),
    ):
        with pytest.raises(kind, match=message):
            make("agentr1/ToolEnv-v0", **kwargs)
    with pytest.raises(SettingError, match="at least one row"):
        make("agentr1/ToolEnv-v0", tasks=[]).reset(seed=0)
    with pytest.raises(DataRowError, match="line 2, field 'answer'"):
        make("agentr1/ToolEnv-v0", tasks=[{"question": "q", "answer": "a"}, {"question": "q"}]).reset(seed=0)
