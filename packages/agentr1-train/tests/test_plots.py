"""``curve.png`` from events."""

from pathlib import Path

import matplotlib.image
import pytest
from agentr1_train import plots
from agentr1_train.config import TrackingConfig
from agentr1_train.errors import MissingFileError
from agentr1_train.metrics import describe
from agentr1_train.tracking import Tracker


def write_events(run_dir: Path, updates: int) -> None:
    with Tracker(run_dir, TrackingConfig(tensorboard=False, progress=False), total=updates) as tracker:
        tracker.log("evaluation", 0, {"eval/success": 0.25})
        for update in range(1, updates + 1):
            numbers = {"rollout/success": 0.5, "rollout/return_mean": 0.5, "rollout/return_std": 0.1 * update}
            tracker.log("update", update, numbers | {"policy/grad_norm": float("nan") if update == 2 else 1.0})


def size(path: Path) -> tuple[int, int]:
    height, width = matplotlib.image.imread(path).shape[:2]
    return width, height


def test_the_curve_has_a_panel_for_what_was_logged(tmp_path: Path):
    write_events(tmp_path, 3)
    path = plots.plot_curve(tmp_path)
    assert path == tmp_path / "curve.png"
    assert size(path) == pytest.approx((3 * plots._WIDTH * 120, plots._HEIGHT * 120), abs=2)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["curve.png", "events.jsonl"]


def test_a_run_that_has_just_begun_can_be_drawn(tmp_path: Path):
    (tmp_path / "events.jsonl").write_bytes(b'{"kind": "upda')
    assert size(plots.plot_curve(tmp_path))[0] > 0


def test_more_events_redraw_the_curve(tmp_path: Path):
    write_events(tmp_path, 1)
    first = plots.plot_curve(tmp_path).read_bytes()
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"kind": "update", "step": 2, "rollout/success": 1.0}\n')
    assert plots.plot_curve(tmp_path).read_bytes() != first


def test_nulls_are_left_out_and_not_drawn_as_zero(tmp_path: Path):
    write_events(tmp_path, 3)
    events = plots.read_events(tmp_path / "events.jsonl")
    assert plots._series(events, "policy/grad_norm") == ([1, 3], [1.0, 1.0])
    assert plots._series(events, "eval/success") == ([0], [0.25])


def test_a_folder_without_events_says_so(tmp_path: Path):
    with pytest.raises(MissingFileError, match="no events at"):
        plots.plot_curve(tmp_path)


def test_everything_drawn_is_in_the_glossary():
    assert [name for lines in plots.PANELS.values() for name in lines if describe(name) is None] == []
