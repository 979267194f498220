"""Incremental rendering: ids seen are kept exactly, and what is added is what the whole template would have added."""

from pathlib import Path
from typing import Any

import pytest
from agentr1_train.errors import ConfigError, MissingFileError
from agentr1_train.renderer import Renderer, load_tokenizer, newest_text

TEMPLATES = {
    "chatml": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "default_system": (  # a system text of its own where there is none, as Qwen2.5 and SmolLM2 do
        "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "trimmed": (  # Llama 3 trims contents
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n\n' + m['content'] | trim + '<|im_end|>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n\n' }}{% endif %}"
    ),
    "thinking_stripped": (  # Qwen3 drops the thinking of earlier turns
        "{% for m in messages %}{% set content = m['content'] %}"
        "{% if m['role'] == 'assistant' and not loop.last %}"
        "{% set content = content.split('</think>')[-1] %}{% endif %}"
        "{{ '<|im_start|>' + m['role'] + '\n' + content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "no_system": (  # Gemma refuses the system role
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "spaced": (  # Llama 2 writes a blank before its end token
        "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ ' ' + m['content'] + ' <|im_end|>' }}"
        "{% else %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% endif %}{% endfor %}"
    ),
    "plain": (  # no token marks the end of a turn
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    ),
}


@pytest.fixture
def renderer_of(tiny_model_dir: Path) -> Any:
    def make(template: str = TEMPLATES["chatml"], context: Any = "append") -> Renderer:
        tokenizer = load_tokenizer(str(tiny_model_dir))
        tokenizer.chat_template = template
        return Renderer(tokenizer, context=context, path=str(tiny_model_dir))

    return make


def whole(renderer: Renderer, messages: list[dict[str, str]]) -> str:
    return renderer.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


@pytest.mark.parametrize("name", sorted(set(TEMPLATES) - {"no_system"}))
def test_three_turns_read_like_the_whole_conversation(renderer_of, name) -> None:
    renderer = renderer_of(TEMPLATES[name])
    encode = renderer.tokenizer.encode
    conversation = renderer.start("what?", system_prompt="Think." if name != "spaced" else "")
    messages = [{"role": "user", "content": "what?"}]
    if name != "spaced":
        messages.insert(0, {"role": "system", "content": "Think."})
    assert renderer.tokenizer.decode(conversation.prompt_ids) == whole(renderer, messages)
    for turn in range(3):
        said = f"answer {turn} <tool_call>"
        response = encode(said, add_special_tokens=False)
        if name == "spaced":
            response = encode(" " + said + " ", add_special_tokens=False)
        ended = name not in ("plain",) and turn != 1  # the second response was cut before its end token
        if ended:
            response.append(renderer.tokenizer.eos_token_id)
        following = renderer.extend(conversation, response, said, f"seen {turn}")
        assert following.prompt_ids[: len(conversation.prompt_ids)] == conversation.prompt_ids
        kept = following.prompt_ids[len(conversation.prompt_ids) :][: len(response)]
        assert list(kept) == response
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": f"seen {turn}"}]
        if name != "spaced":
            assert renderer.tokenizer.decode(following.prompt_ids) == whole(renderer, messages)
        conversation = following


def test_an_end_token_is_written_once_whoever_wrote_it(renderer_of) -> None:
    renderer = renderer_of(TEMPLATES["spaced"])
    end = renderer.tokenizer.eos_token_id
    start = renderer.start("go")
    for response in ([70, 71, end], [70, 71]):
        after = renderer.extend(start, response, "x", "on").prompt_ids[len(start.prompt_ids) :]
        assert after.count(end) == 1
        assert renderer.tokenizer.decode(after).endswith("<|im_end|>[INST] on [/INST]")


def test_sampled_ids_are_kept_though_they_are_not_how_the_tokenizer_writes_them(renderer_of) -> None:
    renderer = renderer_of(TEMPLATES["thinking_stripped"])
    text = "<think>so</think> left"
    ids = [token for char in text for token in renderer.tokenizer.encode(char, add_special_tokens=False)]
    assert ids != renderer.tokenizer.encode(text, add_special_tokens=False)
    start = renderer.start("go")
    following = renderer.extend(start, ids, renderer.decode(ids), "on")
    assert following.prompt_ids[len(start.prompt_ids) :][: len(ids)] == tuple(ids)
    assert "<think>so</think>" in renderer.tokenizer.decode(following.prompt_ids)


def test_messages_that_extend_the_conversation_keep_the_ids_and_others_do_not(renderer_of) -> None:
    renderer = renderer_of()
    first = ({"role": "system", "content": "s"}, {"role": "user", "content": "go"})
    start = renderer.start(first)
    ids = [70, 71, 72, 73]
    action = renderer.decode(ids)
    said = {"role": "assistant", "content": action}
    new = ({"role": "tool", "content": "one"}, {"role": "user", "content": "two"})
    following = renderer.extend(start, ids, action, (*first, said, *new))
    assert following.prompt_ids[: len(start.prompt_ids) + 4] == (*start.prompt_ids, *ids)
    assert renderer.tokenizer.decode(following.prompt_ids) == whole(renderer, [*first, said, *new])
    # A window that dropped the first turn is rendered anew, as is an action the environment rewrote.
    window = (first[0], *new)
    assert renderer.tokenizer.decode(renderer.extend(start, ids, action, window).prompt_ids) == whole(
        renderer, [*window]
    )
    rewritten = (*first, {"role": "assistant", "content": "(removed)"}, *new)
    rendered = renderer.extend(start, ids, action, rewritten)
    assert renderer.tokenizer.decode(rendered.prompt_ids) == whole(renderer, [*rewritten])
    # And it can be extended again from there.
    third = (*rewritten, {"role": "assistant", "content": "abc"}, {"role": "user", "content": "three"})
    abc = renderer.tokenizer.encode("abc", add_special_tokens=False)
    assert renderer.tokenizer.decode(renderer.extend(rendered, abc, "abc", third).prompt_ids) == whole(
        renderer, [*third]
    )


def test_one_conversation_branches(renderer_of) -> None:
    renderer = renderer_of()
    start = renderer.start("go")
    left, right = (renderer.extend(start, ids, renderer.decode(ids), "on") for ids in ([70], [71, 72]))
    assert left.prompt_ids[: len(start.prompt_ids)] == right.prompt_ids[: len(start.prompt_ids)] == start.prompt_ids
    assert left.prompt_ids != right.prompt_ids


def test_replace_takes_a_text_for_the_whole_state(renderer_of) -> None:
    renderer = renderer_of(context="replace")
    start = renderer.start("board 1", system_prompt="s")
    following = renderer.extend(start, [70, 71], "ab", "board 2")
    assert following.prompt_ids == renderer.start("board 2", system_prompt="s").prompt_ids


def test_a_template_without_a_system_role_gets_the_text_before_the_user(renderer_of) -> None:
    renderer = renderer_of(TEMPLATES["no_system"])
    text = renderer.tokenizer.decode(renderer.start("go", system_prompt="Be kind.").prompt_ids)
    assert text == "<|im_start|>user\nBe kind.\n\ngo<|im_end|>\n<|im_start|>assistant\n"


def test_tools_go_to_the_template_once_or_not_at_all(renderer_of, tiny_model_dir) -> None:
    renderer = Renderer(load_tokenizer(str(tiny_model_dir)))
    schema = {"type": "function", "function": {"name": "calculator", "description": "", "parameters": {}}}
    start = renderer.start("go", tool_schemas=[schema], tools_in_template=True)
    assert renderer.tokenizer.decode(start.prompt_ids).count("calculator") == 1
    following = renderer.extend(start, [70], "a", "on")
    assert renderer.tokenizer.decode(following.prompt_ids).count("calculator") == 1
    silent = renderer.start("go", tool_schemas=[schema], tools_in_template=False)
    assert "calculator" not in renderer.tokenizer.decode(silent.prompt_ids)
    with pytest.raises(ConfigError, match="tools_in_template"):
        renderer_of().start("go", tool_schemas=[schema], tools_in_template=True)


def test_end_ids_come_from_tokenizer_generation_config_and_template(tmp_path, tiny_model_dir) -> None:
    tokenizer = load_tokenizer(str(tiny_model_dir))
    tokenizer.add_tokens(["<|eot|>"], special_tokens=True)
    tokenizer.chat_template = TEMPLATES["chatml"].replace("<|im_end|>", "<|eot|>")
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 9]}')
    renderer = Renderer(tokenizer, path=str(tmp_path))
    assert renderer.end_ids == (2, 9, tokenizer.convert_tokens_to_ids("<|eot|>"))
    assert renderer.decode([70, renderer.end_ids[-1]]) == renderer.decode([70])
    assert renderer.decode([70, 2, 71]) == "<|im_end|>".join(renderer.decode([token]) for token in (70, 71))


def test_refusals(renderer_of, tmp_path, tiny_model_dir) -> None:
    with pytest.raises(ConfigError, match=r"no chat template.*model\.chat_template"):
        renderer_of("")
    with pytest.raises(ConfigError, match="cannot render messages with the roles user, assistant"):
        renderer_of("{{ raise_exception('never') }}")
    with pytest.raises(ConfigError, match="drops the assistant"):
        renderer_of("{{ messages[0]['content'] }}")
    with pytest.raises(MissingFileError, match="no tokenizer"):
        load_tokenizer(str(tmp_path))
    with pytest.raises(MissingFileError, match="chat_template"):
        load_tokenizer(str(tiny_model_dir), str(tmp_path / "none.jinja"))
    file = tmp_path / "plain.jinja"
    file.write_text(TEMPLATES["plain"])
    assert Renderer(load_tokenizer(str(tiny_model_dir), str(file))).start("hi").prompt_ids


def test_newest_text() -> None:
    assert newest_text("x") == "x"
    assert newest_text(({"role": "user", "content": "a"}, {"role": "tool", "content": "b"})) == "b"
