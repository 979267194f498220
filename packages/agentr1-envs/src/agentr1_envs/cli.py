"""`agentr1-envs`: list the environments, play or serve one, bring or make their data. Thin: the work is elsewhere."""

import inspect
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import tyro
from rich.console import Console
from rich.table import Table

from agentr1_envs.alfworld.games import NAME as GAMES
from agentr1_envs.alfworld.games import SPLITS as GAME_SPLITS
from agentr1_envs.alfworld.games import find_games
from agentr1_envs.alfworld.sample.bundled import BUNDLED_SPLITS
from agentr1_envs.alfworld.sample.generate import write_games
from agentr1_envs.datasets import DATASETS, SHOP, find_dataset
from agentr1_envs.download import download as fetch
from agentr1_envs.errors import EnvsError, SettingError, require_choice
from agentr1_envs.loader import BUNDLED, OnBadRow, find_file, user_folder
from agentr1_envs.play import play as play_episode
from agentr1_envs.prepare import Prepared, find_sources
from agentr1_envs.prepare import prepare as write_files
from agentr1_envs.registration import ENTRY_POINTS, check_registered
from agentr1_envs.serve_command import serve
from agentr1_envs.webshop.catalogue import find_catalogue
from agentr1_envs.webshop.download import fetch_official
from agentr1_envs.webshop.official import ShopSize
from agentr1_envs.webshop.prepare import prepare_catalogue
from agentr1_envs.webshop.prepared import PreparedCatalogue

_OUT = Console()
_ERRORS = Console(stderr=True)


def list_envs() -> None:
    """Show the environments and where their data would come from."""
    table = Table("id", "what it is")
    for env_id, entry_point in ENTRY_POINTS.items():
        module, function = entry_point.split(":")
        summary = (inspect.getdoc(getattr(import_module(module), function)) or "").splitlines()[0]
        table.add_row(env_id, summary)
    _OUT.print(table)
    places = Table("task", "split", "data")
    for dataset in DATASETS.values():
        for split in dataset.splits:
            places.add_row(dataset.name, split, str(find_file(dataset, split, None) or f"{BUNDLED} sample"))
    places.add_row("webshop", "all", str(find_catalogue(None) or f"{BUNDLED} sample"))
    for split in GAME_SPLITS:
        bundled = f"{BUNDLED} sample" if split in BUNDLED_SPLITS else "none"
        places.add_row(GAMES, split, str(find_games(split, None) or bundled))
    _OUT.print(places)


def play(
    env_id: Annotated[str, tyro.conf.Positional],
    /,
    seed: int | None = None,
    task_id: str | None = None,
    set: tuple[str, ...] = (),
) -> None:
    """Play an environment in the terminal; responses are read from standard input, one a line.

    Args:
        env_id: A registered id, such as agentr1/GSM8K-v0.
        seed: Seed of the episode.
        task_id: Play this task.
        set: Arguments of the environment, as name=value (the value is JSON, or else text).
    """
    check_registered(env_id)
    env: gymnasium.Env[Any, Any] = gymnasium.make(env_id, **dict(_setting(item) for item in set))
    try:
        play_episode(env, sys.stdin, _OUT, seed=seed, task_id=task_id)
    finally:
        env.close()


def prepare(
    task: Annotated[str, tyro.conf.Positional],
    /,
    source: Path,
    out: Path | None = None,
    split: str | None = None,
    corpus: Path | None = None,
    on_bad_row: OnBadRow = "refuse",
    tagger: str | None = None,
) -> None:
    """Turn official files into what the environments read: parquet files and a corpus, or WebShop's catalogue.

    Args:
        task: gsm8k, hotpotqa or webshop.
        source: An official file (jsonl, json or parquet), or a folder of them.
        out: Folder to write to; by default the user's data folder, where the environments look.
        split: Only this split; needed for a file whose name does not tell it.
        corpus: A corpus to bring along; by default it is gathered from the paragraphs of the questions.
        on_bad_row: Refuse files with bad rows, or skip those rows and say which.
        tagger: WebShop only: the spaCy pipeline that finds the nouns of titles, by default en_core_web_sm.
    """
    place = (out or user_folder() / task).expanduser()
    if task == SHOP:
        _refuse(task, split=split, corpus=corpus)
        _report_shop(prepare_catalogue(source.expanduser(), place, tagger=tagger, on_bad_row=on_bad_row))
        return
    dataset = find_dataset(task)
    _refuse(task, tagger=tagger)
    sources = find_sources(dataset, source.expanduser(), split)
    _report(*write_files(dataset, sources, place, corpus=corpus, on_bad_row=on_bad_row), place)


def download(
    task: Annotated[str, tyro.conf.Positional],
    /,
    out: Path | None = None,
    split: str | None = None,
    size: ShopSize | None = None,
) -> None:
    """Fetch the official files of a task (Hugging Face hub; WebShop: Google Drive) and prepare them.

    Args:
        task: gsm8k, hotpotqa or webshop.
        out: Folder to write to; by default the user's data folder, where the environments look.
        split: Only this split.
        size: WebShop only: small (1,000 products, 10 MB, the default) or full (1.18 million, 5.7 GB).
    """
    place = (out or user_folder() / task).expanduser()
    if task == SHOP:
        _refuse(task, split=split)
        _report_shop(prepare_catalogue(fetch_official(place / "official", size or "small"), place))
        return
    _refuse(task, size=size)
    _report(*fetch(find_dataset(task), place, split), place)


def generate(
    task: Annotated[str, tyro.conf.Positional],
    /,
    seed: int = 0,
    count: int = 100,
    split: str = "train",
    most: int = 3,
    things: tuple[str, ...] = (),
    out: Path | None = None,
) -> None:
    """Make games from a seed, each proved solvable by playing its plan, and write them as packed files.

    Args:
        task: alfworld.
        seed: The same seed gives the same games.
        count: How many games.
        split: The split they are for.
        most: Most pieces of furniture of one kind in a home; fewer are fewer places to look.
        things: Kinds of things in the homes, such as mug book desklamp; by default all 24.
        out: Folder to write to; by default the user's data folder, where the environments look.
    """
    require_choice("task", task, (GAMES,))
    require_choice("split", split, GAME_SPLITS)
    path, written = write_games(seed, count, split, (out or user_folder() / GAMES).expanduser(), most, things)
    _OUT.print(f"{path}: {written} games", soft_wrap=True)


def main() -> None:
    """Entry point of the console script; a known error is one line and exit code 2."""
    commands: dict[str, Any] = {
        "list": list_envs,
        "play": play,
        "prepare": prepare,
        "download": download,
        "generate": generate,
        "serve": serve,
    }
    try:
        tyro.extras.subcommand_cli_from_dict(commands, prog="agentr1-envs", description=__doc__)
    except (EnvsError, gymnasium.error.Error) as error:
        _ERRORS.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        _ERRORS.print("interrupted; files appear whole or not at all, and the same command may be run again")
        sys.exit(130)


def _report(written: list[Prepared], passages: int, place: Path) -> None:
    for part in written:
        _OUT.print(f"{part.path}: {part.tasks} tasks", soft_wrap=True)
        if part.empty_gold:
            _OUT.print(f"  {part.empty_gold} gold answers normalise to nothing; they stay valid items")
        for line in part.skipped:
            _OUT.print(f"  skipped: {line}", markup=False, soft_wrap=True)
    if passages:
        folder = place.parent if place.suffix == ".parquet" else place
        _OUT.print(f"{folder / 'corpus.jsonl'}: {passages} passages", soft_wrap=True)


def _report_shop(made: PreparedCatalogue) -> None:
    for source in made.sources:
        known = "as published" if source.published else "no published checksum is known"
        _OUT.print(f"{source.name}: {source.size:,} bytes, sha256 {source.sha256} ({known})", soft_wrap=True)
    nouns = f", nouns by {made.tagger}" if made.tagger else ""
    _OUT.print(f"{made.path}: {made.products:,} products{nouns}", soft_wrap=True)
    for line in made.skipped:
        _OUT.print(f"  skipped: {line}", markup=False, soft_wrap=True)


def _refuse(task: str, **given: object) -> None:
    """Raise SettingError for an option that this task does not have."""
    for name, value in given.items():
        if value is not None:
            raise SettingError(f"--{name} has no effect on {task}.")


def _setting(item: str) -> tuple[str, Any]:
    name, sign, value = item.partition("=")
    if not sign:
        raise SettingError(f"--set {item!r}: needs name=value.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
