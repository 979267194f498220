"""Checkpoints that are whole or not there, and the export to a Hugging Face folder.

``RUN_DIR/checkpoints/step_000010/`` holds one folder an engine, the random states of every rank, the trainer's own
state and, written last, ``COMPLETE``: the list of all files and their sizes. Everything is written under another name
and renamed when all ranks are done, so a run killed at any moment leaves either the whole checkpoint or none.
Which numbers make up the trainer's state is the trainer's affair.
"""

import json
import os
import random
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import torch

from agentr1_train import distributed
from agentr1_train.config import Recipe, to_dict
from agentr1_train.engine.deepspeed import DeepSpeedEngine
from agentr1_train.errors import CheckpointError
from agentr1_train.exhausted import is_disk_full
from agentr1_train.policy import quiet_transformers
from agentr1_train.weight_sync import policy_weights

MANIFEST = "COMPLETE"
FORMAT = 1

_FREE = ("run_dir", "updates", "tracking.", "checkpoint.", "evaluation.", "engine.threads", "ray.")
"""What may differ when a run resumes: it changes no update. A schedule of the learning rate pins ``updates``."""

_MENDABLE = (
    *("engine.micro_batch_tokens", "env.reset_timeout_s", "env.step_timeout_s", "rollout.max_error_fraction"),
    *("optimizer.lr", "optimizer.critic_lr", "optimizer.max_grad_norm"),
    *("sampler.max_batch", "sampler.gpu_memory", "sampler.kv_cache_gb", "rollout.concurrency"),
)
"""What may differ too, and is said aloud: messages ask for it when a run lacked memory, hung or diverged."""

_NAME = re.compile(r"step_(\d{6,})")


def save_checkpoint(
    run_dir: Path,
    step: int,
    engines: Mapping[str, DeepSpeedEngine],
    state: Mapping[str, Any],
    recipe: Recipe,
    untrained: str = "",
) -> Path:
    """Write a checkpoint, remove those beyond ``recipe.checkpoint.keep``, and return its folder. A collective call.

    Args:
        run_dir: folder of the run.
        step: updates done.
        engines: what is trained, by name.
        state: the trainer's own state, as JSON has it; taken from rank 0.
        recipe: remembered, so that another recipe cannot continue this run.
        untrained: what this rank has played and not trained on, as text; empty: nothing.
    """
    final = run_dir / "checkpoints" / f"step_{step:06d}"
    partial = final.with_name(f".{final.name}.partial")
    if distributed.is_main():
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    distributed.barrier()
    try:
        for engine in engines.values():
            engine.save(partial)
        torch.save(random_state(), partial / f"random_rank_{distributed.rank():05d}.pt")
        if untrained:
            (partial / _untrained_file()).write_text(untrained, "utf-8")
        distributed.barrier()
        if distributed.is_main():
            (partial / "state.json").write_text(json.dumps(dict(state)), "utf-8")
            _seal(partial, step, recipe)
            _replace(partial, final)
            prune(run_dir, recipe.checkpoint.keep)
    except Exception as error:
        if is_disk_full(error):  # what is half written takes the very space that is missing
            shutil.rmtree(partial, ignore_errors=True)
        raise
    distributed.barrier()
    return final


def load_checkpoint(folder: Path, engines: Mapping[str, DeepSpeedEngine], recipe: Recipe) -> dict[str, Any]:
    """Restore engines and random states in place, and return the trainer's state. A collective call.

    Raises:
        CheckpointError: not whole, or written by another recipe or rank count; nothing was changed then.
    """
    manifest = read_manifest(folder)
    differences = _differences(manifest, recipe, engines)
    if differences:
        raise CheckpointError(
            f"{folder} belongs to another run: {'; '.join(differences)}. Resume with the recipe and the ranks it was "
            "written with, or start a new run with another run_dir."
        )
    _say_changes(manifest, recipe)
    for engine in engines.values():
        engine.load(folder)
    state = read_state(folder)
    set_random_state(torch.load(folder / f"random_rank_{distributed.rank():05d}.pt", weights_only=True))
    distributed.barrier()
    return state


def read_state(folder: Path) -> dict[str, Any]:
    """Return the trainer's state of a whole checkpoint."""
    return json.loads((folder / "state.json").read_text("utf-8"))


def read_untrained(folder: Path) -> str:
    """Return what ``save_checkpoint`` was given of this rank's ``untrained``; empty: nothing."""
    file = folder / _untrained_file()
    return file.read_text("utf-8") if file.exists() else ""


def latest(run_dir: Path) -> Path | None:
    """Return the newest whole checkpoint of a run, or None. Rank 0 looks, and every rank gets its answer."""
    found = None
    if distributed.is_main():
        found = next((path for path in reversed(_folders(run_dir)) if is_whole(path)), None)
    return distributed.broadcast_object(found)


def is_whole(folder: Path) -> bool:
    """True when the manifest is there and every file it lists is there with its size."""
    try:
        read_manifest(folder)
    except CheckpointError:
        return False
    return True


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a whole checkpoint.

    Raises:
        CheckpointError: there is none, or a file is missing or has another size; the message names the first few.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder} is no whole checkpoint: no readable {MANIFEST} ({error}).") from error
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"{folder} has checkpoint format {manifest.get('format')}, this version reads {FORMAT}.")
    present = _sizes(folder)
    broken = [
        f"{name} ({'missing' if name not in present else f'{present[name]} bytes instead of {size}'})"
        for name, size in manifest["files"].items()
        if present.get(name) != size
    ]
    if broken:
        raise CheckpointError(f"{folder} is damaged: {', '.join(broken[:3])}. Remove the folder to use an older one.")
    return manifest


def prune(run_dir: Path, keep: int) -> None:
    """Remove all but the newest ``keep`` whole checkpoints (0 keeps all), and what a killed run left half written."""
    folders = _folders(run_dir)
    whole = [path for path in folders if is_whole(path)]
    for path in whole[:-keep] if keep else []:
        shutil.rmtree(path)
    for pattern in (".step_*.partial", ".step_*.old"):
        for path in (run_dir / "checkpoints").glob(pattern):
            shutil.rmtree(path)


def random_state() -> dict[str, Any]:
    """Return the states of the generators a run draws from: Python, NumPy, torch, and CUDA where there is one."""
    kind, keys, position, has_gauss, gauss = numpy.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (str(kind), torch.from_numpy(numpy.asarray(keys).astype(numpy.int64)), position, has_gauss, gauss),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Put back what ``random_state`` returned."""
    random.setstate(state["python"])
    kind, keys, position, has_gauss, gauss = state["numpy"]
    numpy.random.set_state((kind, keys.numpy().astype(numpy.uint32), position, has_gauss, gauss))
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def export_policy(engine: DeepSpeedEngine, tokenizer: Any, out: Path) -> Path:
    """Write the policy as a folder that ``from_pretrained`` loads, tokenizer and chat template included. Collective.

    The folder appears whole or not at all, and takes the place of one that was there. Weights keep the engine's
    precision and are gathered on rank 0 only.
    """
    partial = out.with_name(f".{out.name}.partial")
    main = distributed.is_main()
    weights = {}
    for name, tensor in policy_weights(engine):
        if main:
            weights[name] = tensor.to("cpu", copy=True)
    if main:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        model: Any = engine.module.model
        with quiet_transformers():
            model.save_pretrained(partial, state_dict=weights)
        tokenizer.save_pretrained(partial)
        _replace(partial, out)
    distributed.barrier()
    return out


def _untrained_file() -> str:
    return f"untrained_rank_{distributed.rank():05d}.json"


def _seal(folder: Path, step: int, recipe: Recipe) -> None:
    """Force every file to the disk and write the manifest."""
    files = _sizes(folder)
    for name in files:
        with (folder / name).open("rb") as handle:
            os.fsync(handle.fileno())
    manifest = {
        "format": FORMAT,
        "step": step,
        "ranks": distributed.world_size(),
        "recipe": to_dict(recipe),
        "files": files,
    }
    with (folder / MANIFEST).open("w", encoding="utf-8") as handle:
        json.dump(manifest, handle, indent=1)
        handle.flush()
        os.fsync(handle.fileno())


def _replace(partial: Path, final: Path) -> None:
    """Rename a finished folder into place; what was there before goes away afterwards."""
    old = final.with_name(f".{final.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    partial.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def _differences(manifest: Mapping[str, Any], recipe: Recipe, engines: Mapping[str, DeepSpeedEngine]) -> list[str]:
    """Say what in a checkpoint differs from this run."""
    found = []
    if manifest["ranks"] != distributed.world_size():
        found.append(f"it has {manifest['ranks']} ranks, this run {distributed.world_size()}")
    then, now = _flat(manifest["recipe"]), _flat(to_dict(recipe))
    free = _FREE if recipe.optimizer.schedule == "constant" else tuple(name for name in _FREE if name != "updates")
    for name in sorted({*then, *now}):
        if then.get(name) != now.get(name) and not name.startswith((*free, *_MENDABLE)):
            found.append(f"{name} was {then.get(name)!r}, is {now.get(name)!r}")
    stored = {name.split("/")[0] for name in manifest["files"] if "/" in name}
    found += [f"it holds no {engine.name}" for engine in engines.values() if engine.name not in stored]
    return found


def _say_changes(manifest: Mapping[str, Any], recipe: Recipe) -> None:
    then, now = _flat(manifest["recipe"]), _flat(to_dict(recipe))
    changed = [f"{name} = {now.get(name)!r} instead of {then.get(name)!r}" for name in _MENDABLE]
    changed = [text for text, name in zip(changed, _MENDABLE, strict=True) if then.get(name) != now.get(name)]
    if changed and distributed.is_main():
        print(f"agentr1-train: resuming with {', '.join(changed)}", file=sys.stderr)


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _folders(run_dir: Path) -> list[Path]:
    """Return the checkpoint folders of a run, oldest first."""
    found = [
        (match, path) for path in (run_dir / "checkpoints").glob("step_*") if (match := _NAME.fullmatch(path.name))
    ]
    return [path for match, path in sorted(found, key=lambda item: int(item[0].group(1)))]


def _sizes(folder: Path) -> dict[str, int]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}
