"""The folder of a run, from outside: whose it is, and where its events go on. What stands in it, tracking.py writes."""

from itertools import takewhile
from pathlib import Path

from agentr1_train import distributed
from agentr1_train.checkpoint import read_state
from agentr1_train.config import Recipe, to_dict, to_toml
from agentr1_train.errors import ConfigError
from agentr1_train.tracking import EVENTS_FILE, Mark, Tracker

CONFIG_FILE = "config.toml"


def check_folder(folder: Path, resume: bool) -> None:
    """Refuse to write into another run's folder. Every rank looks before rank 0 writes."""
    if not resume and (folder / EVENTS_FILE).exists():
        raise ConfigError(f"{folder} already holds a run. --resume continues it; or set another --run-dir.")
    distributed.barrier()


def is_of(recipe: Recipe, folder: Path) -> bool:
    """True when the folder was written by this very recipe."""
    written = folder / CONFIG_FILE
    return written.is_file() and written.read_text("utf-8") == to_toml(recipe)


def open_tracker(recipe: Recipe, folder: Path, mark: Mark | None) -> Tracker:
    """Open the run folder: the recipe as resolved, and the events, cut back to ``mark``."""
    tracker = Tracker(folder, recipe.tracking, total=recipe.updates, recipe=to_dict(recipe), resume=mark)
    (folder / CONFIG_FILE).write_text(to_toml(recipe), "utf-8")
    return tracker


def where_to_go_on(recipe: Recipe, folder: Path, checkpoint: Path | None) -> Mark | None:
    """Return where the events go on: after the checkpoint or, before the first one, after the warm start."""
    if checkpoint is not None:
        return Mark(**read_state(checkpoint)["mark"])
    events = folder / EVENTS_FILE
    if not events.exists():
        return None
    warm = (b'{"kind": "supervised"',) if recipe.supervised.batches else ()
    with events.open("rb") as lines:
        return Mark(sum(len(line) for line in takewhile(lambda line: line.startswith(warm), lines)), step=0)
