"""Bodies, choices and headers of OpenAI's protocol."""

import json
from typing import Any

import pytest
from agentr1_train.endpoint_config import EndpointConfig
from agentr1_train.errors import EndpointError
from agentr1_train.sampler.base import Prompt, SamplingParams
from agentr1_train.sampler.openai_protocol import (
    TransientError,
    cut_at_stop,
    read_choice,
    request_body,
    retry_after,
)

SCHEMA = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
PROMPT = Prompt((4, 5), (0, 1, 2), 7, ({"role": "user", "content": "hello"},), (SCHEMA,))
SAMPLED = SamplingParams(temperature=0.5, top_p=0.9, stop=("</answer>",))


def chat(content: Any = "hi", finish: str = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": content, **more}, "finish_reason": finish}]}


def test_a_chat_request() -> None:
    body = request_body(PROMPT, SAMPLED, EndpointConfig(model="m"))
    seed = body.pop("seed")
    assert body == {
        "model": "m",
        "max_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [SCHEMA],
    }
    assert json.loads(json.dumps(body)) == body
    again = request_body(PROMPT, SAMPLED, EndpointConfig(model="m"))["seed"]
    other = request_body(Prompt((4, 5), (0, 1, 3), 7), SAMPLED, EndpointConfig(model="m"))["seed"]
    assert seed == again != other
    assert 0 <= seed < 2**31


def test_fields_are_laid_over_a_request_and_taken_out() -> None:
    given = EndpointConfig(model="m", send_stop=True, request={"max_tokens": "", "seed": "", "effort": "low"})
    body = request_body(PROMPT, SAMPLED, given)
    assert body["stop"] == ["</answer>"]
    assert body["effort"] == "low"
    assert not {"max_tokens", "seed"} & set(body)


def test_text_and_finish_reason() -> None:
    assert read_choice(chat(), "chat") == ("hi", "stop")
    assert read_choice(chat(None, "length"), "chat") == ("", "length")
    assert read_choice({"choices": [{"text": "x", "finish_reason": None}]}, "completions") == ("x", "stop")


def test_calls_that_a_server_took_out_go_back_into_the_text() -> None:
    calls = [
        {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
        {"type": "function", "function": {"name": "add", "arguments": '{"a": '}},
    ]
    text, _ = read_choice(chat("so:", "tool_calls", tool_calls=calls), "chat")
    assert text == (
        'so:<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
        '<tool_call>{"name": "add", "arguments": {"a": }</tool_call>'
    )


@pytest.mark.parametrize("answer", [None, [], {}, {"choices": []}, {"choices": [{}]}, chat(7), chat([1])])
def test_what_cannot_be_read_may_go_well_next_time(answer: Any) -> None:
    with pytest.raises(TransientError, match="no choice that can be read"):
        read_choice(answer, "chat")


def test_a_stop_string_that_was_sent_comes_back() -> None:
    answer = chat("42")
    answer["choices"][0]["stop_reason"] = "</answer>"
    assert read_choice(answer, "chat", send_stop=True) == ("42</answer>", "stop")
    answer["choices"][0]["stop_reason"] = None
    assert read_choice(answer, "chat", send_stop=True) == ("42", "stop")
    with pytest.raises(EndpointError, match="does not say which stop string"):
        read_choice(chat("42"), "chat", send_stop=True)


def test_a_stop_string_that_was_not_sent_cuts_here_and_stays() -> None:
    assert cut_at_stop("a</b>c</d>", ("</d>", "</b>")) == ("a</b>", True)
    assert cut_at_stop("abc", ("</d>",)) == ("abc", False)


def test_both_forms_of_retry_after() -> None:
    def now() -> float:
        return 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT

    assert retry_after("2.5", now) == 2.5
    assert retry_after("Tue, 14 Nov 2023 22:13:50 GMT", now) == 30.0
    assert retry_after("Tue, 14 Nov 2023 22:00:00 GMT", now) == 0.0
    assert [retry_after(text, now) for text in ("", "soon", "-3")] == [0.0, 0.0, 0.0]
