"""Recipes: what is read, what is refused and how, and that writing one back loses nothing."""

import dataclasses
import typing
from pathlib import Path
from typing import Any

import pytest
from agentr1_train import config
from agentr1_train.config import Recipe, load_recipe, recipe_from_dict, to_dict, to_toml
from agentr1_train.errors import ConfigError, MissingFileError

TEXT = """
run_dir = "runs/a"
updates = 5

[env]
id = "stranger/Echo-v0"
imports = ["some.module"]
[env.kwargs]
level = 3
names = ["a", "b"]

[rollout]
group_size = 4
temperature = 1

[algorithm]
preset = "ppo"
gamma = 0.9
ratio = "step"

[optimizer]
betas = [0.9, 0.95]

[engine]
zero_stage = 2
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text, "utf-8")
    return path


def test_a_recipe_is_read_into_its_sections(tmp_path: Path):
    recipe = load_recipe(written(tmp_path, TEXT))
    assert (recipe.run_dir, recipe.updates, recipe.seed) == ("runs/a", 5, 0)
    assert recipe.env.imports == ("some.module",)
    assert recipe.env.kwargs == {"level": 3, "names": ["a", "b"]}
    assert recipe.rollout.group_size == 4
    assert (recipe.rollout.temperature, type(recipe.rollout.temperature)) == (1.0, float)
    assert (recipe.algorithm.gamma, recipe.algorithm.ratio, recipe.algorithm.lam) == (0.9, "step", None)
    assert recipe.optimizer.betas == (0.9, 0.95)
    assert recipe.engine.zero_stage == 2


def test_an_empty_recipe_is_the_defaults(tmp_path: Path):
    assert load_recipe(written(tmp_path, "")) == Recipe()


@pytest.mark.parametrize("text", ["", TEXT])
def test_writing_a_recipe_and_reading_it_back_gives_it_again(tmp_path: Path, text: str):
    recipe = load_recipe(written(tmp_path, text))
    assert load_recipe(written(tmp_path, to_toml(recipe))) == recipe
    assert recipe_from_dict(to_dict(recipe)) == recipe


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"updats": 3}, r"recipe: unknown key 'updats'\. Did you mean 'updates'\? Legal: run_dir, seed, updates"),
        ({"rollout": {"group-size": 3}}, r"\[rollout\] unknown key 'group-size'\. Did you mean 'group_size'"),
        ({"env": {"nonsense": 1}}, r"\[env\] unknown key 'nonsense'"),
        ({"rollout": 3}, "rollout is a section, not the value 3"),
        ({"updates": "3"}, "updates = '3': int is needed"),
        ({"updates": 3.0}, "updates = 3.0: int is needed"),
        ({"updates": True}, "updates = True: int is needed"),
        ({"rollout": {"temperature": "hot"}}, "rollout.temperature = 'hot': float is needed"),
        ({"rollout": {"temperature": True}}, "rollout.temperature = True: float is needed"),
        ({"model": {"gradient_checkpointing": 1}}, "gradient_checkpointing = 1: bool is needed"),
        ({"engine": {"dtype": "fp8"}}, "engine.dtype = 'fp8': legal values are 'fp32', 'bf16', 'fp16'"),
        ({"engine": {"zero_stage": True}}, "engine.zero_stage = True: legal values are 0, 1, 2, 3"),
        ({"engine": {"zero_stage": 4}}, "engine.zero_stage = 4: legal"),
        ({"engine": {"zero_stage": 2.0}}, "engine.zero_stage = 2.0: legal"),
        ({"algorithm": {"ratio": "word"}}, "algorithm.ratio = 'word': legal values are 'token', 'step', 'trajectory'"),
        ({"optimizer": {"betas": [0.9]}}, "optimizer.betas = .*: 2 values are needed"),
        ({"optimizer": {"betas": 0.9}}, "optimizer.betas = 0.9: a list is needed"),
        ({"env": {"imports": ["a", 3]}}, "env.imports = 3: str is needed"),
        ({"env": {"kwargs": 3}}, "env.kwargs = 3: a table is needed"),
    ],
)
def test_what_is_refused_says_what_was_given_and_what_is_legal(table: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        recipe_from_dict(table)


def test_messages_name_the_file(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"recipe\.toml is not valid TOML"):
        load_recipe(written(tmp_path, "updates = = 3"))
    with pytest.raises(ConfigError, match=r"recipe\.toml: unknown key"):
        load_recipe(written(tmp_path, "nonsense = 3"))
    with pytest.raises(MissingFileError, match="no recipe at"):
        load_recipe(tmp_path / "none.toml")


def test_recipes_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Recipe().updates = 3  # pyright: ignore[reportAttributeAccessIssue]


SECTIONS = [hint for hint in typing.get_type_hints(Recipe).values() if dataclasses.is_dataclass(hint)]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_tables_of_one_section_are_not_those_of_another(section: type):
    first, second = section(), section()
    for item in dataclasses.fields(section):
        if isinstance(getattr(first, item.name), dict):
            assert getattr(first, item.name) is not getattr(second, item.name)


def test_every_field_can_be_given_its_own_default():
    """What ``to_dict`` writes for the defaults covers every field but those that are ``None``."""
    table = to_dict(Recipe())
    for name, hint in typing.get_type_hints(Recipe).items():
        if dataclasses.is_dataclass(hint):
            silent = {item.name for item in dataclasses.fields(hint) if item.default is None}
            assert set(table[name]) | silent == {item.name for item in dataclasses.fields(hint)}
        else:
            assert name in table
    assert config.recipe_from_dict(table) == Recipe()
