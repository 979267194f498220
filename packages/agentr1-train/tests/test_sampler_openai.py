"""The sampler that asks an endpoint, against a server on real sockets that misbehaves as it is told."""

import asyncio
import dataclasses
import importlib.util
import itertools
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from agentr1_train.cli import main
from agentr1_train.config import EnvConfig, EvaluationConfig, RolloutConfig, recipe_from_dict
from agentr1_train.endpoint_config import EndpointConfig
from agentr1_train.env_pool import EnvPool
from agentr1_train.errors import ConfigError, EndpointError, RequestRefusedError
from agentr1_train.evaluate import Evaluation, evaluate, evaluation_flow
from agentr1_train.renderer import Renderer, byte_tokenizer
from agentr1_train.sampler import openai
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.sampler.openai import LONGEST_RETRY_AFTER_S, OpenAISampler
from agentr1_train.trainer import evaluate_only, train

pytestmark = pytest.mark.once

HERE = Path(__file__).parent
Make = Callable[..., dict[str, Any]]


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("agentr1_scripted_endpoint", HERE / "scripted_endpoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Endpoint: Any = _load().Endpoint


def settings(url: str, **fields: Any) -> EndpointConfig:
    return EndpointConfig(**{"base_url": url, "model": "served", "retries": 2} | fields)


def prompt(word: str, number: int = 0) -> Prompt:
    return Prompt((1, 2, 3), (0, number), 16, ({"role": "user", "content": f"say {word}"},))


@pytest.fixture
def ask() -> Iterator[Callable[..., list[Completion]]]:
    """``ask(url, words, **fields)``: one request a word; the sampler stays in ``ask.sampler``."""
    made: list[OpenAISampler] = []

    def run(url: str, words: tuple[str, ...] = ("left",), **fields: Any) -> list[Completion]:
        made.append(OpenAISampler(settings(url, **fields), byte_tokenizer()))
        run.sampler = made[-1]  # type: ignore[attr-defined]
        return made[-1].sample([prompt(word, at) for at, word in enumerate(words)], SamplingParams(temperature=0.0))

    yield run
    for sampler in made:
        sampler.close()


def test_text_usage_and_cost_come_back(ask: Any) -> None:
    with Endpoint() as server:
        found = ask(server.url, ("left", "right"), price_input=2.0, price_output=10.0)
    assert [item.text for item in found] == ["left", "right"]
    assert [item.finish_reason for item in found] == ["stop", "stop"]
    usage = ask.sampler.usage
    assert (usage["requests"], usage["input_tokens"], usage["output_tokens"], usage["retries"]) == (2, 22, 6, 0)
    assert usage["cost"] == pytest.approx((22 * 2 + 6 * 10) / 1e6)
    sent = sorted(body["messages"][0]["content"] for body in server.bodies)
    assert sent == ["say left", "say right"]
    assert "seed" not in server.bodies[0]


@pytest.mark.parametrize("act", ["500", "503", "408", "drop", "garbage", "odd", "hang"])
def test_what_may_go_well_next_time_is_tried_again(ask: Any, act: str) -> None:
    with Endpoint((act,)) as server:
        (found,) = ask(server.url, timeout_s=2.0 if act == "hang" else 60.0)
        assert found.text == "left"
    usage = ask.sampler.usage
    assert (usage["requests"], usage["retries"], usage["output_tokens"]) == (2, 1, 3)


def test_retry_after_is_waited_for(ask: Any) -> None:
    with Endpoint(("429:1.2",)) as server:
        assert ask(server.url)[0].text == "left"
        first, second = server.times
    assert 1.2 <= second - first < 10.0


def test_backing_off_takes_longer_each_time(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    backoff = openai._backoff

    def noted(attempt: int) -> float:
        waits.append(backoff(attempt))
        return waits[-1]

    monkeypatch.setattr(openai, "_backoff", noted)
    with Endpoint(("500", "500")) as server:
        ask(server.url)
    assert 0.35 < waits[0] < waits[1]
    gaps = [after - before for before, after in itertools.pairwise(server.times)]
    assert all(gap >= wait for gap, wait in zip(gaps, waits, strict=True))


def test_after_the_retries_it_says_what_was_wrong_in_one_line(ask: Any) -> None:
    with (
        Endpoint(("503",) * 3) as server,
        pytest.raises(EndpointError, match=r"in 3 attempts: status 503: told") as seen,
    ):
        ask(server.url)
    assert "\n" not in str(seen.value)
    with pytest.raises(EndpointError, match=r"in 1 attempts: ConnectError"):
        ask("http://127.0.0.1:9/v1", retries=0)


def test_an_endpoint_that_wants_a_day_is_given_up_at_once(ask: Any) -> None:
    wait = LONGEST_RETRY_AFTER_S + 1
    with Endpoint((f"429:{wait}",)) as server, pytest.raises(EndpointError, match="asks to wait 601 s"):
        ask(server.url)
    assert len(server.bodies) == 1


def test_a_wrong_key_is_told_at_once_and_without_the_key(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", "sk-secret")
    with Endpoint(("401",)) as server, pytest.raises(EndpointError, match="status 401") as seen:
        ask(server.url, api_key_env="OUR_KEY")
    assert server.keys == ["Bearer sk-secret"]
    assert "sk-secret" not in str(seen.value)
    assert "***" in str(seen.value)


def test_a_request_refused_for_what_it_says_is_its_own_error(ask: Any) -> None:
    with Endpoint(("400",)) as server, pytest.raises(RequestRefusedError, match="status 400: told to answer 400"):
        ask(server.url)
    assert len(server.bodies) == 1


def test_requests_keep_to_the_rate(ask: Any) -> None:
    with Endpoint() as server:
        started = time.monotonic()
        ask(server.url, ("a",) * 6, requests_per_minute=200.0)
        times = sorted(server.times)
    assert all(at - started >= 0.3 * turn for turn, at in enumerate(times))  # none before its turn
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert statistics.median(gaps) > 0.05  # nor all at the end; a busy machine may hold up some


def test_requests_are_under_way_side_by_side(ask: Any) -> None:
    with Endpoint(together=12) as server:
        ask(server.url, ("a",) * 12)
    assert (server.most_open, len(server.bodies)) == (12, 12)


def test_the_ids_of_a_template_go_to_completions(ask: Any) -> None:
    with Endpoint() as server:
        (found,) = ask(server.url, api="completions", request={"max_tokens": "", "min_tokens": 1})
    assert found.text == "3 ids"
    body = server.bodies[0]
    assert (body["prompt"], body["min_tokens"]) == ([1, 2, 3], 1)
    assert not {"messages", "max_tokens"} & set(body)


def test_a_cancelled_request_is_dropped_and_closing_does_not_wait(tiny_tokenizer: Any) -> None:
    with Endpoint(slow_s=30.0) as server:
        sampler = OpenAISampler(settings(server.url), tiny_tokenizer)

        async def impatient() -> None:
            await asyncio.wait_for(sampler.complete(prompt("left"), SamplingParams()), 0.2)

        with pytest.raises(TimeoutError):
            asyncio.run(impatient())
        started = time.monotonic()
        sampler.close()
        sampler.close()
        assert time.monotonic() - started < 4.5  # it gives up waiting after 5 s


def played(url: str, episodes: int = 6, **fields: Any) -> Evaluation:
    sampler = OpenAISampler(settings(url, **fields), byte_tokenizer())
    options = EvaluationConfig(episodes=episodes)
    try:
        with EnvPool(EnvConfig(id="stranger/Echo-v0")) as pool:
            flow = evaluation_flow(Renderer(byte_tokenizer()), RolloutConfig(), options)
            return evaluate(pool, sampler, flow, options, name="test", seed=0, concurrency=4)
    finally:
        sampler.close()


def test_an_evaluation_has_its_counts_and_one_refusal_costs_one_episode() -> None:
    with Endpoint(("ok", "400", "500")) as server:
        done = played(server.url, price_input=1e6)
    assert (done.success, done.end_reasons) == (pytest.approx(5 / 6), {"error": 1, "terminated": 5})
    (failed,) = [row for row in done.rows if row.error]
    assert failed.error.startswith("step 0: RequestRefusedError: status 400: told to answer 400")
    assert done.usage == {
        "requests": 7,
        "retries": 1,
        "input_tokens": 55,
        "output_tokens": 15,
        "uncounted": 0,
        "cost": 55.0,
    }
    assert done.figures()["usage/cost"] == 55.0


def recipe_on(url: str, make: Make, **sections: Any) -> dict[str, Any]:
    endpoint = {"base_url": url, "model": "served", "retries": 1} | sections.pop("endpoint", {})
    return make(
        model={"path": ""},
        env={"id": "stranger/Echo-v0"},
        sampler={"name": "openai"},
        endpoint=endpoint,
        rollout={"max_prompt_tokens": 2000},
        evaluation={"episodes": 6},
        **sections,
    )


def test_the_command_evaluates_without_a_model_and_tells_counts(
    symbol_recipe: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipe.toml"
    with Endpoint(("500",)) as server:
        path.write_text(tomli_w.dumps(recipe_on(server.url, symbol_recipe)), "utf-8")
        assert main(["evaluate", str(path), "--endpoint.price-output", "1000"]) == 0
    shown = capsys.readouterr().out
    assert "success 100.0%" in shown
    assert "7 requests (1 tried again), 66 tokens in, 18 out, cost 0.0180" in shown
    written = json.loads((tmp_path / "run" / "evaluations" / "evaluation.json").read_text())
    assert written["usage"]["cost"] == pytest.approx(0.018)


def test_an_endpoint_that_is_killed_ends_the_evaluation_in_one_line(
    symbol_recipe: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGKILL while requests are under way; started again, the evaluation is whole."""
    program = [sys.executable, str(HERE / "scripted_endpoint.py"), *["ok"] * 20, "die"]
    path = tmp_path / "recipe.toml"
    words = ["evaluate", str(path), "--evaluation.episodes", "300", "--rollout.concurrency", "2"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        path.write_text(tomli_w.dumps(recipe_on(url, symbol_recipe)), "utf-8")
        assert main(words) == 2
        assert server.wait(timeout=60) == -signal.SIGKILL
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "gave no answer in 2 attempts: ConnectError" in error
    assert not (tmp_path / "run" / "evaluations").exists()
    with Endpoint() as server:
        assert main([*words, "--endpoint.base-url", server.url, "--evaluation.episodes", "6"]) == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"base_url": "localhost:8000"}, "endpoint.base_url = 'localhost:8000'"),
        ({"model": ""}, "endpoint.model is empty"),
        ({"retries": -1}, "endpoint.retries = -1"),
        ({"timeout_s": 0.0}, "endpoint.timeout_s = 0.0"),
        ({"api_key_env": "NO_SUCH_KEY_HERE"}, "environment variable is not set"),
        ({"api": "completions"}, "set model.path"),
    ],
)
def test_refusals(symbol_recipe: Make, fields: dict[str, Any], said: str) -> None:
    recipe = recipe_from_dict(recipe_on("http://127.0.0.1:9/v1", symbol_recipe, endpoint=fields))
    with pytest.raises(ConfigError, match=said):
        evaluate_only(recipe)


def test_training_with_it_is_refused_and_an_endpoint_nobody_asks_too(symbol_recipe: Make) -> None:
    table = recipe_on("http://127.0.0.1:9/v1", symbol_recipe)
    with pytest.raises(ConfigError, match=r"only evaluates.*no token ids to train on") as seen:
        train(recipe_from_dict(table))
    assert "\n" not in str(seen.value)
    recipe = recipe_from_dict(table)
    with pytest.raises(ConfigError, match=r"section endpoint would be without effect: sampler.name is 'hf'"):
        evaluate_only(dataclasses.replace(recipe, sampler=dataclasses.replace(recipe.sampler, name="hf")))
