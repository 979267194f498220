"""A model from scratch: it loads as any other, comes whole or not at all, and fits the environment's texts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from agentr1_train.config import recipe_from_dict
from agentr1_train.errors import ConfigError
from agentr1_train.init_model import END, ModelShape, init_model, init_model_for, train_tokenizer
from agentr1_train.renderer import Renderer
from transformers import AutoModelForCausalLM, AutoTokenizer

SMALL = ModelShape(hidden=32, layers=1, heads=2, vocabulary=300, positions=64)
TEXTS = ["Ann has 12 apples and buys 30 more.", "say left", "two more"] * 20


def test_the_folder_loads_and_renders_a_conversation(tmp_path: Path) -> None:
    parameters = init_model(TEXTS, tmp_path / "model", SMALL)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert sum(weight.numel() for weight in model.parameters()) == parameters
    assert model.config.max_position_embeddings == 64
    renderer = Renderer(tokenizer)
    assert renderer.end_ids == (tokenizer.convert_tokens_to_ids(END),)
    prompt = renderer.start("Ann has 12 apples.", system_prompt="Be brief.").prompt_ids
    assert tokenizer.decode(list(prompt)) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nAnn has 12 apples.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert model(torch.tensor([prompt])).logits.isfinite().all()


def test_the_tokenizer_writes_any_text_and_gives_every_digit_a_token() -> None:
    tokenizer = train_tokenizer(["x12 apples x12 apples"] * 50, 300)
    text = "x12 apples, 3.5 €, 日本\n\ttab"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    for piece in tokenizer.convert_ids_to_tokens(ids):
        assert not any(c.isdigit() for c in piece) or len(piece) == 1


def test_numbers_are_left_whole_where_they_are_names(tmp_path: Path) -> None:
    texts = ["take mug 2 from desk 12"] * 50
    init_model(texts, tmp_path / "model", ModelShape(hidden=32, layers=1, heads=2, vocabulary=320, digits=False))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    ids = tokenizer.encode("take mug 2 from desk 12", add_special_tokens=False)
    assert [tokenizer.decode(i) for i in ids] == ["take", " mug", " 2", " from", " desk", " 12"]


def test_the_base_of_the_rotary_embedding_is_a_choice(tmp_path: Path) -> None:
    init_model(TEXTS, tmp_path / "model", ModelShape(hidden=32, layers=1, heads=2, vocabulary=300, rope_theta=1e6))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert model.config.rope_parameters["rope_theta"] == 1e6


def test_equal_seeds_give_equal_weights(tmp_path: Path) -> None:
    state = torch.get_rng_state()
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        init_model(TEXTS, tmp_path / name, ModelShape(hidden=32, layers=1, heads=2, vocabulary=300, seed=seed))
    assert torch.equal(torch.get_rng_state(), state)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


def test_what_does_not_fit_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hidden = 33 is not a multiple of heads = 4"):
        init_model(TEXTS, tmp_path / "model", ModelShape(hidden=33))
    with pytest.raises(ConfigError, match=r"vocabulary = 100: at least \d+ are needed"):
        init_model(TEXTS, tmp_path / "model", ModelShape(vocabulary=100))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.txt").write_text("keep")
    with pytest.raises(ConfigError, match=r"is not empty. Remove it"):
        init_model(TEXTS, tmp_path / "model", SMALL)
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["mine.txt"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    init_model(TEXTS, tmp_path / "model", SMALL)
    assert (tmp_path / "model" / "config.json").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


class FruitEnv(gymnasium.Env[str, str]):
    """Shows one word, wants another."""

    observation_space = action_space = gymnasium.spaces.Text(100)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return "tangerine", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", float(action == "kumquat"), True, False, {}

    def demonstration(self) -> list[str]:
        return ["kumquat"]


def test_the_texts_come_from_the_environment_and_its_demonstrations(
    symbol_recipe: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    gymnasium.register("stranger/Fruit-v0", entry_point=FruitEnv)
    table = symbol_recipe(env={"id": "stranger/Fruit-v0"}, model={"path": str(tmp_path / "made")})
    shape = ModelShape(hidden=32, layers=1, heads=2, vocabulary=400)
    assert init_model_for(recipe_from_dict(table), shape, episodes=30) > 10_000
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "made")
    for word in ("tangerine", "kumquat"):
        assert len(tokenizer.encode(word, add_special_tokens=False)) == 1
    with pytest.raises(ConfigError, match=r"model\.path is empty"):
        init_model_for(recipe_from_dict(symbol_recipe(model={"path": ""})), SMALL, episodes=1)
