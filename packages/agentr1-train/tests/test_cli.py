"""The command line: overrides, one-line errors with exit code 2, Ctrl-C, help."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from agentr1_train.cli import COMMANDS, OVERVIEW, main, read_recipe
from agentr1_train.tracking import read_events
from transformers import AutoModelForCausalLM

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def recipe_file(symbol_recipe: Make, tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(tomli_w.dumps(symbol_recipe()), "utf-8")
    return path


def test_without_arguments_it_says_how_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().out == OVERVIEW
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == OVERVIEW


def test_the_overview_names_every_command_and_no_other() -> None:
    listed = OVERVIEW.partition("commands:\n")[2].partition("\n\n")[0].splitlines()
    assert {line.split()[0] for line in listed if not line.startswith("   ")} == set(COMMANDS)


def test_help_of_a_recipe_lists_every_section(recipe_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([str(recipe_file), "--help"])
    assert not end.value.code
    text = capsys.readouterr().out
    for option in ("--rollout.group-size", "--algorithm.preset", "--engine.zero-stage", "--checkpoint.every"):
        assert option in text


def test_every_field_can_be_overridden(recipe_file: Path) -> None:
    words = "--rollout.group-size 16 --optimizer.betas 0.8 0.9 --algorithm.clip-high 0.3 --seed 7 --env.imports json"
    recipe = read_recipe([str(recipe_file), *words.split(), "--tracking.tensorboard"], "train")
    assert recipe.rollout.group_size == 16
    assert recipe.rollout.groups == 2
    assert recipe.optimizer.betas == (0.8, 0.9)
    assert recipe.algorithm.clip_high == 0.3
    assert recipe.seed == 7
    assert recipe.env.imports == ("json",)
    assert recipe.tracking.tensorboard


def test_arguments_of_the_environment_are_passed_on(recipe_file: Path) -> None:
    words = ["--env.kwargs.steps", "3", "--env.kwargs.symbols=ab", "--env.eval-kwargs.new-name", "[1, 2]"]
    recipe = read_recipe([str(recipe_file), *words, "--updates", "5"], "train")
    assert recipe.env.kwargs == {"steps": 3, "symbols": "ab"}
    assert recipe.env.eval_kwargs == {"new_name": [1, 2]}
    assert recipe.updates == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rollout.groups", "many"], "--rollout.groups"),
        (["--rollout.gruops", "3"], "Did you mean --rollout.groups?"),
        (["--engine.zero-stage", "7"], "'0', '1', '2', '3'"),
        (["--env.kwargs.steps"], "--env.kwargs.steps needs a value"),
        (["--algorithm.preset", "gpro"], "Did you mean 'grpo'?"),
        (["--algorithm.estimator", "nothing_like_it"], "Legal: bilevel_gae,"),
        (["--algorithm.preset", "reinforce", "--algorithm.clip-low", "0.1"], "would be without effect"),
        (["--sampler.name", "scriptd"], "Did you mean 'scripted'?"),
        (["--env.id", "symbol_env:Symbol-v1"], "symbol_env:Symbol-v1"),
        (["--env.kwargs.file", "absent.txt"], "absent.txt"),
        (["--model.path", "./absent"], "absent"),
        (["--run-dir", ""], "run_dir is empty"),
        (["stray"], "stray"),
    ],
)
def test_a_mistake_is_one_line_with_exit_code_2_and_nothing_is_written(
    words: list[str], said: str, recipe_file: Path, symbol_recipe: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(recipe_file), *words]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("agentr1-train: ")
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert captured.out == ""
    assert not Path(symbol_recipe()["run_dir"]).exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[rollout]\ngruops = 3\n", "[rollout] unknown key 'gruops'. Did you mean 'groups'?"),
        ("updates = 'ten'\n", "updates = 'ten': int is needed"),
        ("updates = \n", "is not valid TOML"),
        ("[engine]\nzero_stage = 4\n", "legal values are 0, 1, 2, 3"),
    ],
)
def test_a_wrong_recipe_is_one_line(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    assert main(["train", str(path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "wrong.toml" in error
    assert error.count("\n") == 1


def test_a_command_that_is_not_there_and_one_without_its_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "unknown command 'trian'. Did you mean 'train'?" in capsys.readouterr().err
    for command in ("train", "supervised", "evaluate"):
        assert main([command]) == 2
        assert f"agentr1-train {command} RECIPE.toml" in capsys.readouterr().err
    assert main(["absent.toml"]) == 2
    assert "no recipe at absent.toml" in capsys.readouterr().err


def test_a_stranger_s_environment_trains_evaluates_and_refuses_a_second_run(
    recipe_file: Path, symbol_recipe: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plain ``gymnasium.Env``, found through ``env.imports``; the launcher's argument is accepted."""
    folder = Path(symbol_recipe()["run_dir"])
    words = ["--env.id", "Symbol-v0", "--env.imports", "symbol_env", "--tracking.progress"]
    assert main(["--local_rank=0", str(recipe_file), *words]) == 0
    assert [event["kind"] for event in read_events(folder / "events.jsonl")] == ["update", "update"]
    assert AutoModelForCausalLM.from_pretrained(folder / "model")
    shown = capsys.readouterr().out
    assert "update 1/2" in shown
    assert "update 2/2" in shown

    assert main([str(recipe_file)]) == 2
    assert "already holds a run. --resume continues it" in capsys.readouterr().err
    assert main([str(recipe_file), *words, "--resume"]) == 0

    there = ["--model.path", str(folder / "model"), "--evaluation.episodes", "5"]
    capsys.readouterr()
    assert main(["evaluate", str(recipe_file), *there]) == 0
    assert "over 5 tasks" in capsys.readouterr().out
    assert json.loads((folder / "evaluations" / "evaluation.json").read_text())["tasks"] == 5


def test_init_model_and_the_warm_start_are_commands(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    text = recipe_file.read_text("utf-8")
    path = next(line for line in text.splitlines() if line.startswith("path"))
    own = tmp_path / "own.toml"
    own.write_text(text.replace(path, f'path = "{made}"'), "utf-8")
    shape = ["--hidden", "32", "--layers", "1", "--heads", "2", "--vocabulary", "300", "--episodes", "3"]
    assert main(["init-model", str(own), *shape]) == 0
    assert "parameters" in capsys.readouterr().out
    assert AutoModelForCausalLM.from_pretrained(made).config.hidden_size == 32
    assert main(["init-model", str(own), *shape]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["init-model", str(own), "--hiden", "8"]) == 2
    assert "--hidden" in capsys.readouterr().err

    words = ["--env.id", "symbol_env:ShownSymbol-v0", "--supervised.batches", "2", "--rollout.max-prompt-tokens", "200"]
    assert main(["supervised", str(own), *words]) == 0
    out = capsys.readouterr().out.strip().splitlines()[-1]
    assert AutoModelForCausalLM.from_pretrained(out.removeprefix("the model lies in "))


def test_ctrl_c_is_one_line_and_exit_code_130(
    recipe_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import symbol_env

    once = iter([signal.SIGINT])  # other environments step at the same time: a late signal would meet pytest
    step = symbol_env.SymbolEnv.step

    def interrupted(self: Any, action: str) -> Any:
        for number in once:
            os.kill(os.getpid(), number)
        return step(self, action)

    monkeypatch.setattr(symbol_env.SymbolEnv, "step", interrupted)
    assert main([str(recipe_file)]) == 130
    assert capsys.readouterr().err == "agentr1-train: interrupted; --resume continues from the last checkpoint.\n"
    monkeypatch.undo()


def test_the_module_starts_without_importing_torch() -> None:
    """``--help`` and a mistake in a recipe are answered at once."""
    code = "import sys; from agentr1_train.cli import main; main(['trian']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("command", ["train", "supervised", "evaluate", "baselines"])
def test_help_of_a_command_without_a_recipe(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert "RECIPE.toml" in capsys.readouterr().out
