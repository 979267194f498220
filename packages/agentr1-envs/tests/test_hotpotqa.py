import json
import random
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.errors import DataNotFoundError, SettingError


def search(query: str) -> str:
    return f'<tool_call>{{"name": "wiki_search", "arguments": {{"query": "{query}"}}}}</tool_call>'


def test_a_search_shows_passages_and_counts_hops(make: Any) -> None:
    env = make("agentr1/HotpotQA-v0", progressive="increments", max_results=2)
    task = next(task for task in env.tasks if task.kind == "bridge")
    env.reset(options={"task_id": task.task_id})
    first, second = task.supporting_titles
    observation, reward, _, _, info = env.step(search("no such words at all"))
    assert (reward, info["hops_found"], info["tool_errors"]) == (0.0, 0, 0)
    observation, reward, _, _, info = env.step(search(first))
    assert (reward, info["hops_found"]) == (pytest.approx(0.1), 1)
    assert observation.count("[") == 2
    assert env.step(search(first))[1] == 0.0
    assert env.step(search(second))[1] == pytest.approx(0.2)
    _, reward, _, _, info = env.step(f"<answer>The {task.answers[0]}.</answer>")
    assert (reward, info["em"], info["success"], info["hops_found"]) == (pytest.approx(0.7), 1.0, True, 2)


@pytest.mark.parametrize(("reward_by", "reward"), [("em", 0.0), ("f1", pytest.approx(2 / 3))])
@pytest.mark.parametrize("mode", ["tools", "react", "context"])
def test_reward_by_em_or_f1(make: Any, mode: str, reward_by: str, reward: float) -> None:
    env = make("agentr1/HotpotQA-v0", mode=mode, reward=reward_by)
    task = next(task for task in env.tasks if len(task.answers[0].split()) == 1)
    env.reset(options={"task_id": task.task_id})
    said = f"{task.answers[0]} indeed"
    _, paid, terminated, _, info = env.step(f"finish[{said}]" if mode == "react" else f"<answer>{said}</answer>")
    assert (paid, terminated, info["success"], info["em"]) == (reward, True, False, 0.0)
    assert (info["f1"], info["precision"], info["recall"]) == (pytest.approx(2 / 3), 0.5, 1.0)


def test_context_shows_the_ten_paragraphs_and_no_answer(make: Any) -> None:
    env = make("agentr1/HotpotQA-v0", mode="context", split="dev")
    for task_id in env.task_ids[:20]:
        observation, _ = env.reset(options={"task_id": task_id})
        blocks = observation.split("\n\n")
        assert len(blocks) == 11
        assert blocks[-1] == f"Question: {env.task.question}"
        titles = [block.split("\n")[0] for block in blocks[:-1]]
        assert set(env.task.supporting_titles) <= set(titles)


def test_facts_are_asked_for_and_scored(make: Any, expert: Any) -> None:
    env = make("agentr1/HotpotQA-v0", mode="context", split="dev", facts=True)
    for task_id in env.task_ids[:20]:
        info = expert(env, task_id)[-1][4]
        assert [info[name] for name in ("sp_em", "sp_f1", "joint_em", "joint_f1")] == [1.0] * 4
    observation, info = env.reset(seed=1)
    title, place = env.task.supporting[0]
    sentence = next(passage for passage in env.task.context if passage.title == title).sentences[place]
    assert f"[{place}] {sentence.strip()}" in observation
    assert "<facts>" in env.system_prompt
    assert info["sp_em"] == info["joint_f1"] == 0.0
    info = env.step(f"<facts>{title} [{place}]\nElsewhere [0]</facts><answer>{env.task.answers[0]}</answer>")[4]
    assert (info["sp_em"], info["sp_precision"], info["sp_recall"], info["sp_f1"]) == (0.0, 0.5, 0.5, 0.5)
    assert (info["joint_em"], info["joint_precision"], info["success"]) == (0.0, 0.5, True)
    assert "sp_em" not in make("agentr1/HotpotQA-v0", mode="context").reset(seed=0)[1]


# Real data


def test_real_questions_with_the_real_corpus(make: Any, expert: Any, shared_data: Path) -> None:
    env = make("agentr1/HotpotQA-v0", data=shared_data / "hotpotqa", split="dev")
    assert len(env.task_ids) == 755
    hops = wanted = 0
    for task_id in env.task_ids[:150]:
        steps = expert(env, task_id)
        info = steps[-1][4]
        assert (info["success"], info["em"], info["tool_errors"]) == (True, 1.0, 0), task_id
        hops, wanted = hops + info["hops_found"], wanted + len(env.task.supporting_titles)
    assert hops / wanted > 0.9


def test_real_questions_in_react_and_context(make: Any, expert: Any, shared_data: Path) -> None:
    env = make("agentr1/HotpotQA-v0", data=shared_data / "hotpotqa", split="train", mode="react")
    assert len(env.task_ids) == 399
    for task_id in env.task_ids:
        info = expert(env, task_id)[-1][4]
        assert (info["success"], info["hops_found"]) == (True, len(env.task.supporting_titles)), task_id
    context = make("agentr1/HotpotQA-v0", data=shared_data / "hotpotqa", split="train", mode="context")
    assert all(task.context_titles for task in context.tasks)
    for task_id in context.task_ids[:50]:
        observation, _ = context.reset(options={"task_id": task_id})
        assert observation.count("\n\n") == len(context.task.context_titles)


def test_the_react_subset(make: Any, shared_data: Path) -> None:
    file = shared_data / "hotpotqa" / "hotpot_dev_v1_simplified.json"
    env = make("agentr1/HotpotQA-v0", data=file, split="dev", subset="react500", mode="react")
    ids = list(range(7405))
    random.Random(233).shuffle(ids)
    assert env.task_ids == tuple(f"dev-{index:05d}" for index in ids[:500])
    rows = json.loads(file.read_text(encoding="utf-8"))
    assert [task.question for task in env.tasks] == [rows[index]["question"] for index in ids[:500]]
    with pytest.raises(SettingError, match="755"):
        make("agentr1/HotpotQA-v0", data=file.parent, split="dev", subset="react500").reset(seed=0)


def test_wrong_arguments_are_refused_at_once(make: Any, tmp_path: Path, shared_data: Path) -> None:
    for kwargs, kind, message in (
        ({"mode": "tool"}, SettingError, "Did you mean 'tools'"),
        ({"split": "test"}, SettingError, "'train', 'dev'"),
        ({"reward": "EM"}, SettingError, "'em'"),
        ({"mode": "react", "max_results": 3}, SettingError, "mode='react': there is no setting 'max_results'"),
        ({"mode": "context", "retriever": "http://x"}, SettingError, "mode='context': there is no setting"),
        ({"max_result": 3}, SettingError, "there is no setting 'max_result'"),
        ({"corpus": tmp_path / "none.jsonl"}, DataNotFoundError, "none.jsonl.*agentr1-envs prepare"),
        ({"corpus": Path(__file__), "retriever": "http://x"}, SettingError, "not both"),
        ({"subset": "react"}, SettingError, "Did you mean 'react500'"),
    ):
        with pytest.raises(kind, match=message):
            make("agentr1/HotpotQA-v0", **kwargs)
    lonely = tmp_path / "dev.json"
    lonely.write_text(json.dumps([{"question": "q", "answer": "a"}]))
    for mode in ("tools", "react"):
        env = make("agentr1/HotpotQA-v0", data=lonely, split="dev", mode=mode)
        with pytest.raises(DataNotFoundError, match=r"corpus\.jsonl"):
            env.reset(seed=0)
    with pytest.raises(DataNotFoundError, match="without paragraphs"):
        make("agentr1/HotpotQA-v0", data=lonely, split="dev", mode="context").reset(seed=0)
