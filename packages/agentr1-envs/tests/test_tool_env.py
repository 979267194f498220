import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from agentr1_envs import Task, TaskSet, ToolEnv
from agentr1_envs import tool_env as module
from agentr1_envs.errors import SettingError
from agentr1_tools import BaseTool


def call(expression: str, name: str = "calculator") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"expression": "{expression}"}}}}\n</tool_call>'


TASKS = TaskSet(
    "toy",
    "train",
    (
        Task("sum", "train", "What is 2+3?", ("5",), plan=("2+3",)),
        Task("hops", "train", "Who?", ("Ada",), supporting=(("A", 0), ("B", 1), ("C", 0), ("A", 2))),
    ),
    "here",
)


class Finder(BaseTool):
    """Finds the titles it is asked for."""

    name = "find"
    description = "Find titles."
    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {"titles": {"type": "array", "items": {"type": "string"}}},
        "required": ["titles"],
    }
    cooperative = True
    cacheable = False
    timeout = 10.0

    def execute(self, params: dict[str, Any]) -> dict[str, Any]:
        if "boom" in params["titles"]:
            raise RuntimeError("boom")
        return {"status": "success", "data": [{"title": title} for title in params["titles"]]}


class Sleeper(Finder):
    name = "sleep"
    timeout = 10.0
    seconds = 0.05

    def execute(self, params: dict[str, Any]) -> dict[str, Any]:
        time.sleep(self.seconds)
        return {"status": "success", "data": None}


def find(*titles: str) -> str:
    listed = ", ".join(f'"{title}"' for title in titles)
    return f'<tool_call>{{"name": "find", "arguments": {{"titles": [{listed}]}}}}</tool_call>'


@pytest.fixture
def start() -> Any:
    """Makes a ToolEnv on the toy tasks and resets it."""
    made: list[ToolEnv] = []

    def _start(task_id: str = "sum", tools: Any = ("calculator",), **settings: Any) -> ToolEnv:
        if all(isinstance(tool, str) for tool in tools):
            settings = {"tool_timeout": 10.0, **settings}  # the tests share the machine
        env = ToolEnv(tools, TASKS, **settings)
        made.append(env)
        env.reset(options={"task_id": task_id})
        return env

    yield _start
    for env in made:
        env.close()


def test_calls_run_and_then_the_answer_is_scored(start: Callable[..., ToolEnv]) -> None:
    env = start()
    observation, reward, terminated, truncated, info = env.step("I add. " + call("2+3"))
    assert observation == "<tool_response>\n5\n</tool_response>"
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert (info["tool_calls"], info["tool_errors"], info["success"]) == (1, 0, False)
    _, reward, terminated, _, info = env.step("It is <answer>5</answer>.")
    assert (reward, terminated, info["success"], info["prediction"]) == (1.0, True, True, "5")
    assert (info["reward/task"], info["reward/env"], info["reward/format"]) == (1.0, 0.0, 0.0)


def test_a_response_without_call_or_tag_is_the_answer(start: Callable[..., ToolEnv]) -> None:
    _, reward, terminated, _, info = start().step("5")
    assert (reward, terminated, info["end_reason"]) == (1.0, True, "answer")


def test_an_empty_response_is_a_wrong_answer(start: Callable[..., ToolEnv]) -> None:
    _, reward, terminated, _, info = start().step("")
    assert (reward, terminated, info["success"], info["prediction"]) == (0.0, True, False, "")


def test_an_answer_beside_calls_waits(start: Callable[..., ToolEnv]) -> None:
    env = start()
    observation, reward, terminated, _, info = env.step(call("1+1") + "<answer>5</answer>")
    assert (reward, terminated, info["success"]) == (0.0, False, False)
    assert "2" in observation


def test_results_stand_in_call_order_and_one_bad_call_stops_no_other(start: Callable[..., ToolEnv]) -> None:
    env = start()
    broken = '<tool_call>{"name": "calculator", "arguments": {</tool_call>'
    unknown = call("1", name="calculater")
    listed = '<tool_call>{"name": "calculator", "arguments": ["1+1"]}</tool_call>'
    observation, _, terminated, _, info = env.step(
        "".join([call("1+1"), broken, unknown, listed, call("1/0"), call("3+3")])
    )
    texts = [part.split("\n")[1] for part in observation.split("<tool_response>")[1:]]
    assert (texts[0], texts[5]) == ("2", "6")
    assert info["error_codes"] == ("PARSE_ERROR", "UNKNOWN_TOOL", "PARSE_ERROR", "EXECUTION_ERROR")
    assert "did you mean 'calculator'" in texts[2]
    assert (info["tool_calls"], info["tool_errors"], info["invalid_calls"], info["invalid_steps"]) == (6, 4, 3, 0)
    assert not terminated


def test_a_call_inside_thinking_is_not_run(start: Callable[..., ToolEnv]) -> None:
    _, _, terminated, _, info = start().step(f"<think>{call('1+1')}</think><answer>5</answer>")
    assert (terminated, info["tool_calls"], info["success"]) == (True, 0, True)


def test_malformed_calls_get_feedback_and_three_in_a_row_end_the_episode(start: Callable[..., ToolEnv]) -> None:
    env = start(max_steps=20, invalid_penalty=0.25)
    bad = "<tool_call>calculate 2+3"
    for _ in range(2):
        observation, reward, terminated, _, info = env.step(bad)
        assert "PARSE_ERROR" in observation
        assert (reward, info["reward/format"], terminated) == (-0.25, -0.25, False)
    assert env.step(call("1+1"))[1] == 0.0  # a valid call starts the count anew
    ends = [env.step(bad) for _ in range(3)]
    assert [end[2] for end in ends] == [False, False, True]
    info = ends[-1][4]
    assert (info["end_reason"], info["success"], info["invalid_steps"]) == ("max_invalid", False, 5)


def test_a_failed_call_that_was_written_well_is_no_invalid_step(start: Callable[..., ToolEnv]) -> None:
    env = start(max_invalid=1, max_steps=20)
    _, _, terminated, _, info = env.step(call("1/0"))
    assert (terminated, info["tool_errors"], info["invalid_steps"]) == (False, 1, 0)


def test_the_step_limit_cuts_with_the_last_result_kept(start: Callable[..., ToolEnv]) -> None:
    env = start(max_steps=2)
    env.step(call("1+1"))
    observation, reward, terminated, truncated, info = env.step(call("2+2"))
    assert (terminated, truncated, reward, info["success"], info["end_reason"]) == (
        False,
        True,
        0.0,
        False,
        "max_steps",
    )
    assert "4" in observation


def test_calls_over_the_limit_are_not_run(start: Callable[..., ToolEnv]) -> None:
    observation, _, _, _, info = start(max_calls_per_step=2).step(call("1+1") + call("2+2") + call("3+3"))
    assert info["error_codes"] == ("CALL_LIMIT",)
    assert "4" in observation
    assert ">6<" not in observation.replace("\n", "")


def test_the_tool_time_of_an_episode_runs_out_and_comes_back(start: Callable[..., ToolEnv]) -> None:
    env = start("hops", [Sleeper()], tool_seconds_per_episode=0.01)
    act = find("A").replace("find", "sleep")
    assert env.step(act)[4]["error_codes"] == ()
    observation, *_, info = env.step(act)
    assert info["error_codes"] == ("TIMEOUT",)
    assert "give the final answer" in observation
    env.reset(options={"task_id": "hops"})
    assert env.step(act)[4]["error_codes"] == ()


def test_the_time_of_a_call_can_be_set_for_named_tools(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sleeper, "seconds", 1.0)
    monkeypatch.setattr(module, "load_tool", lambda name: Sleeper())
    act = find("A").replace("find", "sleep")
    observation, *_, info = start("hops", ("sleep",), tool_timeout=0.001).step(act)
    assert info["error_codes"] == ("TIMEOUT",)
    assert "0.001 s" in observation
    assert start("hops", ("sleep",)).step(act)[4]["error_codes"] == ()  # another limit, another box
    with pytest.raises(SettingError, match="set `timeout` on the tools"):
        ToolEnv([Finder()], TASKS, tool_timeout=1.0).reset(seed=0)


def test_a_megabyte_of_anything_survives(start: Callable[..., ToolEnv]) -> None:
    env = start(max_steps=20)
    for noise in ("<tool_call>" * 90_000, "{" * 1_000_000, "<answer>" * 125_000):
        env.reset(options={"task_id": "sum"})
        assert len(env.step(noise)[0]) < 20_000


def test_the_conversation_keeps_the_last_steps(start: Callable[..., ToolEnv]) -> None:
    env = start(observation="messages", history=2, max_steps=9)
    for number in range(4):
        observation, *_ = env.step(call(f"{number}+0"))
    assert [message["role"] for message in observation] == ["system", "user", *["assistant", "user"] * 2]
    assert observation[1]["content"] == "What is 2+3?"
    assert [message["content"] for message in observation[2::2]] == [call("2+0"), call("3+0")]


def test_an_image_of_a_tool_is_refused_aloud_not_dropped(start: Callable[..., ToolEnv]) -> None:
    class Camera(Sleeper):
        def execute(self, params: dict[str, Any]) -> dict[str, Any]:
            return {"status": "success", "data": {"caption": "a tree", "image": b"\x89PNG"}}

    observation, _, _, _, info = start("hops", [Camera()]).step(find("A").replace("find", "sleep"))
    assert info["error_codes"] == ("INVALID_RESULT",)
    assert "data.image is a bytes, which JSON cannot hold" in observation


def test_a_tool_exception_is_feedback(start: Callable[..., ToolEnv]) -> None:
    observation, _, terminated, _, info = start("hops", [Finder()]).step(find("boom"))
    assert (info["error_codes"], terminated) == (("EXECUTION_ERROR",), False)
    assert "boom" in observation


@pytest.mark.parametrize(
    ("given", "limits", "paid"),
    [
        (0.01, (0.1, 0.3), 0.1),
        (0.2, (0.1, 0.3), 0.2),
        (5.0, (0.1, 0.3), 0.3),
        (5.0, None, 5.0),
        (-2.0, (0.1, 0.3), -2.0),
    ],
)
def test_process_rewards_are_clipped_when_positive(start: Any, given: float, limits: Any, paid: float) -> None:
    env = start(process_reward=lambda call, result: given, process_reward_range=limits)
    _, reward, _, _, info = env.step(call("1+1"))
    assert (reward, info["reward/env"]) == (paid, paid)


def test_a_failed_call_never_earns(start: Callable[..., ToolEnv]) -> None:
    env = start(process_reward=lambda call, result: 1.0)
    assert env.step(call("1/0"))[1] == 0.0
    assert env.step(call("1/0") + call("1+1"))[1] == 0.3
    assert env.step("<tool_call>{")[1] == 0.0


def test_a_process_reward_must_be_a_number(start: Callable[..., ToolEnv]) -> None:
    with pytest.raises(SettingError, match="nan"):
        start(process_reward=lambda call, result: float("nan")).step(call("1+1"))


@pytest.mark.parametrize(
    ("progressive", "rewards"),
    [
        ("levels", [0.1, 0.0, 0.9, 1.0]),
        ("increments", [0.1, 0.0, 0.5, 0.4]),
        ("off", [0.0, 0.0, 0.0, 1.0]),
    ],
)
def test_hops_pay_once(start: Any, progressive: str, rewards: list[float]) -> None:
    env = start("hops", [Finder()], progressive=progressive)
    steps = [env.step(action) for action in (find("A", "X"), find("A"), find("C", "B"), "<answer>Ada</answer>")]
    assert [step[1] for step in steps] == pytest.approx(rewards)
    assert [step[4]["hops_found"] for step in steps] == [1, 1, 3, 3]
    if progressive == "increments":
        assert sum(step[1] for step in steps) == pytest.approx(1.0)


def test_per_hop_comes_on_top_and_a_wrong_answer_pays_nothing(start: Any) -> None:
    env = start("hops", [Finder()], per_hop=0.1, format_reward=0.05)
    assert env.step(find("A", "B"))[1] == pytest.approx(0.2)
    _, reward, _, _, info = env.step("<answer>Bob</answer>")
    assert (reward, info["reward/task"], info["reward/format"]) == (pytest.approx(0.05), 0.0, 0.05)


def test_nothing_of_an_episode_leaks_into_the_next(start: Callable[..., ToolEnv]) -> None:
    env = start("hops", [Finder()], max_invalid=2, progressive="levels", max_steps=9)
    env.step(find("A"))
    env.step("<tool_call>{")
    _, info = env.reset(options={"task_id": "hops"})
    assert all(info[name] == 0 for name in ("tool_calls", "tool_errors", "invalid_steps", "hops_found", "steps"))
    _, _, terminated, _, info = env.step("<tool_call>{")
    assert (terminated, info["tool_calls"]) == (False, 1)
    assert env.step(find("A"))[1] == pytest.approx(0.1)


def test_the_system_text_and_the_schemas(start: Callable[..., ToolEnv]) -> None:
    env = start()
    assert '"calculator"' in env.system_prompt
    assert "<answer>" in env.system_prompt
    assert env.tool_schemas[0]["function"]["name"] == "calculator"
    env.tool_schemas[0]["function"]["name"] = "changed by the reader"
    assert env.tool_schemas[0]["function"]["name"] == "calculator"
    assert env.stop == ["</answer>", "<tool_response>"]
    outside = start(tools_in_template=True)
    assert outside.tools_in_template
    assert '"parameters"' not in outside.system_prompt
    assert "<answer>" in outside.system_prompt
    assert start(max_calls_per_step=1).stop[0] == "</tool_call>"
    assert len(start(system="short").system_prompt) < 100
    assert start(system="none").system_prompt == ""
    assert start(system="Be brief.").system_prompt == "Be brief."


def test_the_other_format(start: Callable[..., ToolEnv]) -> None:
    env = start(format="call")
    script = env.demonstration()
    assert script == ['<tool_call>calculator(expression="2+3")</tool_call>', "<answer>5</answer>"]
    assert env.step(script[0])[4]["error_codes"] == ()
    assert env.step('<tool_call>calculator("2*3")</tool_call>')[0] == "<tool_response>\n6\n</tool_response>"


def test_wrong_settings_are_refused() -> None:
    for settings, message in (
        ({"max_step": 3}, "Did you mean 'max_steps'"),
        ({"process_reward": "sucess"}, "'success'"),
    ):
        with pytest.raises(SettingError, match=message):
            ToolEnv(("calculator",), TASKS, **settings)
    with pytest.raises(SettingError, match="hermes"):
        ToolEnv(("calculator",), TASKS, format="hermse")
    with pytest.raises(SettingError, match="calculator"):
        ToolEnv(("calculater",), TASKS).reset(seed=0)
    with pytest.raises(SettingError, match="at least one tool"):
        ToolEnv((), TASKS).reset(seed=0)
    with pytest.raises(SettingError, match="name"):
        ToolEnv([{"corpus": "x"}], TASKS).reset(seed=0)
    with pytest.raises(SettingError, match="colour"):
        ToolEnv([{"name": "calculator", "colour": "red"}], TASKS).reset(seed=0)


def test_environments_of_a_process_share_one_box_until_the_last_closes() -> None:
    gc.collect()
    before = len(module._BOXES)
    first, second = (
        ToolEnv(("calculator",), TASKS, max_result_chars=777, tool_timeout=10.0),
        ToolEnv(("calculator",), TASKS, max_result_chars=777, tool_timeout=10.0),
    )
    for env in (first, second):
        env.reset(seed=0)
    assert len(module._BOXES) == before + 1
    assert first.bench._boxes[0] is second.bench._boxes[0]
    first.close()
    first.close()  # twice is allowed
    assert second.step(call("1+1"))[4]["error_codes"] == ()
    second.close()
    assert len(module._BOXES) == before
    first.reset(seed=0)  # a closed environment opens again
    assert first.step(call("1+1"))[4]["error_codes"] == ()
    first.close()


def test_episodes_run_side_by_side_in_threads() -> None:
    def play(number: int) -> list[str]:
        env = ToolEnv(("calculator",), TASKS, max_steps=30, tool_timeout=10.0)
        env.reset(seed=number)
        texts = [env.step(call(f"{number}*{i}"))[0] for i in range(20)]
        env.close()
        return texts

    with ThreadPoolExecutor(8) as pool:
        for number, texts in enumerate(pool.map(play, range(16))):
            assert texts == [f"<tool_response>\n{number * i}\n</tool_response>" for i in range(20)]


def test_a_plan_longer_than_the_steps_is_grouped() -> None:
    task = Task("long", "train", "?", ("6",), plan=("1+1", "2+2", "3+3", "4+4", "5+5"))
    tasks = TaskSet("toy", "train", (task,), "here")
    env = ToolEnv(("calculator",), tasks, max_steps=3, tool_timeout=10.0)
    env.reset(seed=0)
    script = env.demonstration()
    assert [text.count("<tool_call>") for text in script] == [3, 2, 0]
    for action in script:
        _, _, terminated, truncated, info = env.step(action)
    assert (terminated, truncated, info["tool_errors"]) == (True, False, 0)
    env.close()
