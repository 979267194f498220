"""``curve.png``: a run at a glance, drawn from ``events.jsonl`` and nothing else.

It can be drawn while the run goes on. matplotlib's windows are never used.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentr1_train.tracking import EVENTS_FILE, read_events

if TYPE_CHECKING:  # a second and a half of a run's start, for one drawing at its end
    from matplotlib.axes import Axes

PANELS: Mapping[str, Mapping[str, str]] = {
    "success": {"rollout/success": "training", "eval/success": "held out"},
    "return": {"rollout/return_mean": "training", "eval/return": "held out"},
    "policy": {"policy/entropy": "entropy", "policy/grad_norm": "gradient norm"},
    "KL": {"policy/kl_old": "to the old policy", "policy/kl_ref": "to the reference", "mismatch/kl": "sampler"},
    "critic": {"critic/loss": "loss", "critic/explained_variance": "explained variance"},
    "supervised start": {"supervised/loss": "nats a token"},
}
"""Title -> metric -> label. A panel without a number is left out."""

_WIDTH, _HEIGHT = 5.2, 3.2
_ENVELOPE = {"rollout/return_mean": "rollout/return_std"}


def plot_curve(run_dir: Path) -> Path:
    """Draw ``curve.png`` in the run folder and return its path; an older one is replaced when the new one is complete.

    Raises:
        MissingFileError: there is no ``events.jsonl``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    events = read_events(run_dir / EVENTS_FILE)
    panels = {title: lines for title, lines in PANELS.items() if any(_series(events, name)[0] for name in lines)}
    columns = min(3, max(1, len(panels)))
    rows = max(1, -(-len(panels) // columns))
    figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for index, (title, lines) in enumerate(panels.items(), start=1):
        _draw(figure.add_subplot(rows, columns, index), title, lines, events)
    figure.suptitle(run_dir.resolve().name)
    path = run_dir / "curve.png"
    temporary = path.with_name(f".curve.png.{os.getpid()}")
    try:
        figure.savefig(temporary, format="png", dpi=120)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _draw(axes: "Axes", title: str, lines: Mapping[str, str], events: Sequence[Mapping[str, Any]]) -> None:
    for name, label in lines.items():
        steps, values = _series(events, name)
        if not steps:
            continue
        marker = "o" if name.startswith("eval/") or len(steps) == 1 else None
        (line,) = axes.plot(steps, values, label=label, marker=marker, markersize=4, linewidth=1.4)
        if name in _ENVELOPE:
            spread_steps, spread = _series(events, _ENVELOPE[name])
            if spread_steps == steps:
                low, high = ([v + sign * s for v, s in zip(values, spread, strict=True)] for sign in (-1, 1))
                axes.fill_between(steps, low, high, alpha=0.12, color=line.get_color(), linewidth=0)
    axes.set_title(title)
    axes.set_xlabel("batch" if title.startswith("supervised") else "update")
    if title == "success":
        axes.set_ylim(-0.02, 1.02)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", frameon=False)


def _series(events: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Return the steps and values of a metric, in the order of the events; nulls are left out."""
    points = [(event["step"], event[name]) for event in events if event.get(name) is not None]
    return [step for step, _ in points], [value for _, value in points]
