from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.errors import DataNotFoundError, SettingError


def test_the_bundled_problems_need_several_calls(make: Any) -> None:
    env = make("agentr1/GSM8K-v0", split="test", data="bundled")
    lengths = {len(task.plan) for task in env.tasks}
    assert lengths == {2, 3}
    assert len(env.task_ids) == 400
    env.reset(options={"task_id": env.task_ids[0]})
    assert len(env.demonstration()) == len(env.task.plan) + 1


def test_a_hasty_expert_forgets_calls_and_answers_with_what_it_has(make: Any) -> None:
    """Always at the same place of a problem; about as often as it is told; and its answer is a result it has seen."""
    env = make("agentr1/GSM8K-v0", data="bundled", operations=[3], hasty=0.3)
    patient = make("agentr1/GSM8K-v0", data="bundled", operations=[3])
    whole, right = 0, 0
    for task_id in env.task_ids[:300]:
        shown, (observation, info), seen = [], env.reset(options={"task_id": task_id}), ""
        patient.reset(options={"task_id": task_id})
        actions = env.demonstration()
        assert actions == env.demonstration()
        assert actions[:-1] == patient.demonstration()[: len(actions) - 1]
        for action in actions:
            seen = observation
            observation, _, terminated, _, info = env.step(action)
            shown.append(action)
        assert terminated
        assert info["prediction"] in seen
        whole += len(shown) == 4
        right += info["success"]
    assert 0.7**2 - 0.1 < whole / 300 < 0.7**2 + 0.1
    assert whole <= right < whole + 30  # a wrong number of operations is seldom right by chance


@pytest.mark.parametrize("arguments", [{"hasty": 1.5}, {"hasty": 0.5, "mode": "single"}])
def test_haste_that_means_nothing_is_refused(make: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="hasty"):
        make("agentr1/GSM8K-v0", **arguments)


def test_a_solved_problem_pays_once(make: Any, expert: Any) -> None:
    """However many steps it took: the answer pays, and the calls before it do not."""
    env = make("agentr1/GSM8K-v0", split="test", data="bundled")
    for task_id in env.task_ids[:5]:
        steps = expert(env, task_id)
        assert len(steps) >= 3
        assert [info["reward/task"] for *_, info in steps] == [0.0] * (len(steps) - 1) + [1.0]
        assert sum(reward for _, reward, *_ in steps) == 1.0


@pytest.mark.parametrize("operations", [1, (4,), [2, 4]])
def test_operations_choose_the_problems(make: Any, operations: Any) -> None:
    env = make("agentr1/GSM8K-v0", operations=operations, max_number=9)
    wanted = {operations} if isinstance(operations, int) else set(operations)
    assert {len(task.plan) for task in env.tasks} == wanted


@pytest.mark.parametrize(
    ("answer", "lenient", "official"),
    [("{gold}", 1.0, 1.0), ("${gold}.00", 1.0, 0.0), ("{gold}1", 0.0, 0.0), ("none", 0.0, 0.0)],
)
@pytest.mark.parametrize("mode", ["single", "calculator"])
def test_both_scores_are_in_info(make: Any, mode: str, answer: str, lenient: float, official: float) -> None:
    env = make("agentr1/GSM8K-v0", mode=mode)
    env.reset(seed=4)
    said = answer.format(gold=env.task.answers[0])
    _, reward, terminated, _, info = env.step(f"<answer>{said}</answer>")
    assert terminated
    assert (reward, info["gsm8k_lenient"], info["gsm8k_official"]) == (lenient, lenient, official)
    assert info["success"] == (lenient == 1.0)


def test_thinking_is_no_answer(make: Any) -> None:
    env = make("agentr1/GSM8K-v0", mode="single")
    env.reset(seed=4)
    assert env.step(f"<think>Is it {env.task.answers[0]}?</think> I do not know.")[4]["success"] is False
    env.reset(seed=4)
    assert env.step(f"<think>0</think> It is {env.task.answers[0]}.")[4]["success"] is True


@pytest.mark.parametrize("mode", ["single", "calculator"])
def test_a_megabyte_of_digits_is_only_a_wrong_answer(make: Any, mode: str) -> None:
    env = make("agentr1/GSM8K-v0", mode=mode)
    env.reset(seed=4)
    assert env.step("9" * 1_000_000)[4]["success"] is False


def test_the_official_rule_reads_the_response_when_it_has_the_mark(make: Any) -> None:
    env = make("agentr1/GSM8K-v0", mode="single")
    env.reset(seed=4)
    assert env.step(f"#### {env.task.answers[0]}")[4]["gsm8k_official"] == 1.0


def test_the_oracle_tells_and_ends_nothing(make: Any) -> None:
    env = make("agentr1/GSM8KOracle-v0")
    names = [schema["function"]["name"] for schema in env.tool_schemas]
    assert names == ["calculator", "check_answer"]
    env.reset(seed=2)
    gold = env.task.answers[0]
    ask = '<tool_call>{{"name": "check_answer", "arguments": {{"answer": "{}"}}}}</tool_call>'
    wrong, _, terminated, _, info = env.step(ask.format(int(gold) + 1))
    assert ("Not correct." in wrong, terminated, info["success"]) == (True, False, False)
    right, reward, terminated, _, info = env.step(ask.format(gold))
    assert (">\nCorrect.\n<" in right, reward, terminated, info["success"]) == (True, 0.0, False, False)
    both = env.step(
        '<tool_call>{"name": "calculator", "arguments": {"expression": "8*9"}}</tool_call>' + ask.format(f"{gold}.0")
    )
    assert both[0] == "<tool_response>\n72\n</tool_response>\n<tool_response>\nCorrect.\n</tool_response>"
    assert "check_answer" in env.step(ask.format(1).replace("check_answer", "check_anser"))[0]
    assert env.step(ask.format(gold).replace('answer": "', 'answr": "'))[4]["error_codes"] == ("INVALID_ARGUMENT",)


def test_the_oracle_follows_the_episode(make: Any) -> None:
    first, second = make("agentr1/GSM8KOracle-v0"), make("agentr1/GSM8KOracle-v0")
    for env, seed in ((first, 1), (second, 2), (first, 3)):
        env.reset(seed=seed)
    assert first.task.answers != second.task.answers
    for env in (first, second):
        for action in env.demonstration()[:-1]:
            observation = env.step(action)[0]
        assert "Correct." in observation
        assert "Not" not in observation


def test_the_plain_modes_have_no_oracle(make: Any) -> None:
    env = make("agentr1/GSM8K-v0")
    env.reset(seed=2)
    ask = f'<tool_call>{{"name": "check_answer", "arguments": {{"answer": "{env.task.answers[0]}"}}}}</tool_call>'
    assert env.step(ask)[4]["error_codes"] == ("UNKNOWN_TOOL",)
    assert env.task.answers[0] not in env.system_prompt


def test_the_real_problems_with_the_scripted_expert(make: Any, expert: Any, shared_data: Path) -> None:
    env = make("agentr1/GSM8K-v0", data=shared_data / "gsm8k", split="test", max_steps=20)
    assert len(env.task_ids) == 1319
    calls = errors = 0
    for task_id in env.task_ids:
        steps = expert(env, task_id)
        info = steps[-1][4]
        assert (steps[-1][1], info["success"], info["gsm8k_official"]) == (1.0, True, 1.0), task_id
        calls, errors = calls + info["tool_calls"], errors + info["tool_errors"]
    assert calls > 3500
    assert errors == 0


def test_the_real_problems_in_single_mode(make: Any, expert: Any, shared_data: Path) -> None:
    env = make("agentr1/GSM8K-v0", data=shared_data / "gsm8k" / "train.jsonl", mode="single", operations=(7, 8))
    assert {len(task.plan) for task in env.tasks} == {7, 8}
    again = make("agentr1/GSM8K-v0", data=shared_data / "gsm8k" / "train.jsonl", mode="single", operations=(7, 8))
    assert again.tasks is env.tasks
    for task_id in env.task_ids[:200]:
        assert expert(env, task_id)[0][4]["success"]
        assert "<<" not in env.demonstration()[0]


def test_wrong_arguments_are_refused_at_once(tmp_path: Path, make: Any, shared_data: Path) -> None:
    for kwargs, kind, message in (
        ({"mode": "calculater"}, SettingError, "Did you mean 'calculator'"),
        ({"split": "tset"}, SettingError, "Did you mean 'test'"),
        ({"operations": 7}, SettingError, "operations"),
        ({"max_number": 2}, SettingError, "at least 5"),
        ({"mode": "single", "max_steps": 3}, SettingError, "mode='single': there is no setting 'max_steps'"),
        ({"max_step": 3}, SettingError, "Did you mean 'max_steps'"),
        ({"data": shared_data / "gsm8k", "max_number": 9}, SettingError, "no effect"),
        ({"data": tmp_path / "nowhere"}, DataNotFoundError, "agentr1-envs prepare gsm8k"),
        ({"data": tmp_path}, DataNotFoundError, "holds no file"),
    ):
        with pytest.raises(kind, match=message):
            make("agentr1/GSM8K-v0", **kwargs)
