"""What folding saves in rollout files: the bytes of one of ours beside those of one with whole prompts in flat rows.

    .venv/bin/python benchmarks/bench_rollout_files.py

Groups of G trajectories of T steps after a common prompt of P tokens; responses of 32 tokens, observations of 64,
appended; ids and log-probabilities are drawn at random, texts are left out. Both files are parquet under zstd.
"""

import argparse
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from agentr1_train.folding import unfold
from agentr1_train.tracking import read_rollouts, write_rollouts
from agentr1_train.trajectory import Step, Trajectory
from rich.console import Console
from rich.table import Table

Cell = tuple[int, int, int]
"""Prompt tokens, steps, trajectories."""

CELLS: tuple[Cell, ...] = ((256, 4, 8), (256, 16, 8), (1024, 8, 8))
RESPONSE, OBSERVATION = 32, 64
PROMPT = ("prompt_base", "prompt_shared", "prompt_rest")
IDS = pa.list_(pa.int32())


def play(cell: Cell, groups: int, vocabulary: int) -> Iterator[Trajectory]:
    """The trajectories of a file."""
    prompt, steps, members = cell
    draw = random.Random(0)

    def ids(length: int) -> tuple[int, ...]:
        return tuple(draw.randrange(vocabulary) for _ in range(length))

    for group in range(groups):
        task = ids(prompt)
        for member in range(members):
            taken, history = [], task
            for _ in range(steps):
                said = ids(RESPONSE)
                logp = tuple(-draw.expovariate(1.0) for _ in said)
                taken.append(Step(history, said, logp, "", "", 0.0, False, False, "stop", ""))
                history = history + said + ids(OBSERVATION)
            yield Trajectory(tuple(taken), "bench", "", group, group, member, False, "terminated", "")


def sizes(cell: Cell, groups: int, vocabulary: int, folder: Path) -> tuple[int, int, int, int, int]:
    """Bytes: of prompts as 4-byte ids, in flat rows, and folded; of the whole file with flat rows, and folded."""
    found = list(play(cell, groups, vocabulary))
    folded, flat, part = (folder / name for name in ("folded.parquet", "flat.parquet", "part.parquet"))
    write_rollouts(folded, found)
    if read_rollouts(folded) != found:
        raise AssertionError("what was written does not come back")
    table = pq.read_table(folded)
    rows = table.to_pylist()
    unfold(rows)
    prompts = pa.table({"prompt_ids": pa.array([row["prompt_ids"] for row in rows], IDS)})
    whole = table.drop_columns(list(PROMPT)).append_column("prompt_ids", prompts["prompt_ids"])

    def written(what: pa.Table, path: Path) -> int:
        pq.write_table(what, path, compression="zstd")
        return path.stat().st_size

    raw = 4 * sum(len(row["prompt_ids"]) for row in rows)
    alone = written(prompts, part), written(table.select(list(PROMPT)), part)
    return raw, *alone, written(whole, flat), folded.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=49152)
    arguments = parser.parse_args()
    console = Console(width=120)
    names = ("prompts, raw", "prompts, flat", "prompts, folded", "file, flat", "file, folded")
    table = Table("P, T, G", *(f"{name}, kB" for name in names), "flat / folded")
    with tempfile.TemporaryDirectory() as folder:
        for cell in CELLS:
            found = sizes(cell, arguments.groups, arguments.vocabulary, Path(folder))
            table.add_row(
                ", ".join(map(str, cell)), *(f"{size / 1000:,.0f}" for size in found), f"{found[3] / found[4]:.2f}"
            )
    console.print(f"{arguments.groups} groups, ids below {arguments.vocabulary}, parquet with zstd", highlight=False)
    console.print(table)


if __name__ == "__main__":
    main()
